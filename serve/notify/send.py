"""One attempt to tell one receiver. Only configured addresses are called, no redirect is followed, no proxy of the environment is used."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from minder.model.errors import ConfigError
from minder.record.api.notices import DELIVERY_HEADER, SIGNATURE_HEADER, Notice, sign
from serve.notify.chat import chat_message
from serve.notify.targets import Target, read_secret

__all__ = ["Attempt", "Sender"]

_ALERTS = "/api/v2/alerts"
_MOST_ANSWER = 16 * 1024
_CONTENT_REFUSED = (400, 413, 415, 422)
_LONGEST_WAIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of it. refused: the receiver took offence at the content, which will not change. wait_s: how long it asks us to wait."""

    delivered: bool
    detail: str = ""
    refused: bool = False
    wait_s: float = 0.0


class Sender:
    """Sends to one receiver; `close` it."""

    def __init__(self, target: Target, http: httpx.Client | None = None) -> None:
        """Raises ConfigError for a ca_file that is none."""
        self._target = target
        try:
            context = ssl.create_default_context(cafile=target.ca_file)
        except OSError as error:  # also ssl.SSLError
            raise ConfigError(f"ca_file {target.ca_file} cannot be used: {error.strerror or error}") from error
        self._http = http or httpx.Client(verify=context, timeout=target.timeout_s, trust_env=False, follow_redirects=False)

    def close(self) -> None:
        self._http.close()

    def send_notice(self, notice: Notice, now_s: float) -> Attempt:
        """To a webhook or a chat room. now_s: for the signature."""
        document = chat_message(notice) if self._target.kind == "slack" else notice.model_dump(mode="json")
        body = json.dumps(document, separators=(",", ":")).encode()
        headers = {DELIVERY_HEADER: notice.id}
        try:
            if self._target.secret_file is not None:
                headers[SIGNATURE_HEADER] = sign(read_secret("secret_file", self._target.secret_file), body, now_s)
            return self._post(self._target.address(), body, headers)
        except ConfigError as error:
            return Attempt(False, str(error))

    def send_alerts(self, alerts: Sequence[Mapping[str, Any]]) -> Attempt:
        """To Alertmanager."""
        try:
            url = self._target.address().rstrip("/")
            return self._post(url if url.endswith(_ALERTS) else url + _ALERTS, json.dumps(list(alerts)).encode(), {})
        except ConfigError as error:
            return Attempt(False, str(error))

    def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Attempt:
        """The address and what the receiver says of itself stay out of the detail: both may be secrets."""
        sent = {"Content-Type": "application/json", "User-Agent": "minder", **headers}
        if self._target.token_file is not None:
            sent["Authorization"] = f"Bearer {read_secret('token_file', self._target.token_file)}"
        deadline_s = time.monotonic() + 2 * self._target.timeout_s
        try:
            with self._http.stream("POST", url, content=body, headers=sent) as answer:
                received = 0
                for block in answer.iter_raw():
                    received += len(block)
                    if received > _MOST_ANSWER or time.monotonic() > deadline_s:
                        break
        except httpx.InvalidURL:
            return Attempt(False, "its address cannot be used")
        except httpx.HTTPError as error:
            return Attempt(False, f"it does not answer ({type(error).__name__})")
        return _judge(answer)


def _judge(answer: httpx.Response) -> Attempt:
    status = answer.status_code
    if 200 <= status < 300:
        return Attempt(True, f"HTTP {status}")
    if 300 <= status < 400:
        return Attempt(False, f"HTTP {status}: it sends us elsewhere, which is not followed; configure the address that is meant")
    asked = answer.headers.get("retry-after", "")
    wait_s = min(_LONGEST_WAIT_S, float(asked)) if asked.isascii() and asked.isdigit() else 0.0
    return Attempt(False, f"HTTP {status}", refused=status in _CONTENT_REFUSED, wait_s=wait_s)
