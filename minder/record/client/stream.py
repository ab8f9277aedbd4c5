"""The ledger's events as they are written: server-sent events, taken up again where a connection ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import httpx

from minder.model.errors import WireError
from minder.record.api.incidents import Event
from minder.record.client.client import Client

__all__ = ["follow_events", "parse_stream"]

_SILENCE_S = 45.0  # three times the service's sign of life


def follow_events(
    client: Client, *, job: str | None = None, since_id: int | None = None, attempts: int = 10, kinds: Sequence[str] | None = None
) -> Iterator[Event]:
    """New events, for ever; after `since_id` if given. A lost connection is taken up behind the last event, so none is missed.
    kinds: only these; "scores" among them adds the machines' scores as they are, every five seconds.

    Raises WireError after `attempts` connections in a row that brought nothing, BadInputError where the service refuses.
    """
    failed, last = 0, since_id
    while failed < attempts:
        headers = {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": str(last)})
        params: dict[str, Any] = ({"job": job} if job else {}) | ({"kind": list(kinds)} if kinds else {})
        given: dict[str, Any] = {"params": params, "timeout": httpx.Timeout(_SILENCE_S, connect=5.0)}
        try:
            with client.calls.http.stream("GET", "/v1/events/stream", headers=headers, **given) as answer:
                if not answer.is_success:
                    answer.read()
                    client.calls.check(answer)
                for event in parse_stream(answer.iter_lines()):
                    failed, last = 0, event.id
                    yield event
        except httpx.TransportError:
            pass
        failed += 1
        time.sleep(min(5.0, 0.2 * failed))
    raise WireError(f"{client.calls.http.base_url}: the event stream does not hold")


def parse_stream(lines: Iterable[str]) -> Iterator[Event]:
    """Events of the ledger out of the stream's lines; comments and events of other kinds (without an id) are left out.

    >>> list(parse_stream([": alive", "", "event: degraded", "data: {}", ""]))
    []
    """
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        if "id" in fields and "data" in fields:
            yield Event.model_validate(json.loads(fields["data"]))
        fields = {}
