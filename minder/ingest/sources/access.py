"""How a Prometheus is reached: whose certificate it shows, who we are, and what each refusal means."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from minder.model.errors import SourceError
from minder.wire.tls import FieldNames, client_context

__all__ = ["SECRET_VARIABLES", "Access", "SplitUrl", "refusal_of_answer", "refusal_of_error", "refuses_size", "split_user"]

_PASSWORD, _TOKEN = SECRET_VARIABLES = "MINDER_PROMETHEUS_PASSWORD", "MINDER_PROMETHEUS_TOKEN"
_FILES = FieldNames("telemetry.ca_file", "telemetry.cert_file", "telemetry.key_file")


@dataclass(frozen=True, slots=True)
class Access:
    """ca_file: PEM file of who signs the server's certificate (empty: the authorities of this machine). cert_file, key_file: our own
    certificate. username and password: basic authentication. token: a bearer token. tenant: X-Scope-OrgID. headers: sent as they are,
    and before all of these. What is secret shows in no repr."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    tenant: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def with_environment(self) -> Access:
        """The same with what the environment says of the password and the token, where nothing else does."""
        password = self.password or (os.environ.get(_PASSWORD, "") if self.username else "")
        token = self.token or ("" if self.username else os.environ.get(_TOKEN, ""))
        return replace(self, password=password, token=token)

    @property
    def is_secret(self) -> bool:
        """Whether it holds a secret."""
        return bool(self.password or self.token or self.headers)

    @property
    def identifies(self) -> bool:
        """Whether it says who asks."""
        return bool(self.username or self.token or any(name.lower() == "authorization" for name in self.headers))

    def all_headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.tenant:
            found["X-Scope-OrgID"] = self.tenant
        if self.username:
            found["Authorization"] = "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        elif self.token:
            found["Authorization"] = f"Bearer {self.token}"
        own = {name.lower() for name in self.headers}
        return {**{name: value for name, value in found.items() if name.lower() not in own}, **self.headers}

    def context(self) -> ssl.SSLContext | bool:
        """For httpx. Raises ConfigError for files that cannot be used."""
        if not self.ca_file and not self.cert_file:
            return True
        return client_context(self.ca_file, self.cert_file, self.key_file, _FILES)


class SplitUrl(NamedTuple):
    """An address without user and password, and these two; "" where it has none."""

    url: str
    user: str
    password: str


def split_user(url: str) -> SplitUrl:
    """Take user and password out of an address.

    >>> split_user("https://obs:s3cr%40t@prom:9090/pre")
    SplitUrl(url='https://prom:9090/pre', user='obs', password='s3cr@t')
    >>> split_user("http://prom:9090")
    SplitUrl(url='http://prom:9090', user='', password='')
    """
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return SplitUrl(url, "", "")
    host = parts.netloc.rpartition("@")[2]
    return SplitUrl(urlunsplit(parts._replace(netloc=host)), unquote(parts.username or ""), unquote(parts.password or ""))


_CUT = "ask again; if it is always cut, a proxy before it limits size or time: narrow --selector"
_ANSWERS = {
    401: ("it wants to know who asks (HTTP 401)", "give --user NAME with --password-file (telemetry.username, password_file), "
          "or --bearer-token-file (bearer_token_file)"),
    403: ("it knows us and refuses (HTTP 403)", "let this user or token read it, or give another one; a shared server may want --tenant"),
    404: ("there is no query API under that address (HTTP 404)", "add the path prefix that it is served under, such as URL/prometheus"),
    405: ("it takes no GET there (HTTP 405)", "give the address of the query frontend, not of the receiver"),
    429: ("it was asked too often (HTTP 429)", "raise telemetry.interval_s, or its limits"),
    502: ("the proxy before it does not reach it (HTTP 502)", "start it, or mend the proxy"),
    503: ("it is not ready (HTTP 503)", "wait until it has read its files, or look at its log"),
    504: ("the proxy before it waited in vain (HTTP 504)", "narrow --selector, or raise the proxy's time-out"),
}  # fmt: skip

_ERRORS = (
    (("Hostname mismatch", "doesn't match", "IP address mismatch", "not valid for"),
     "its certificate is made out to another name", "use the name that stands in the certificate, or have it signed for this one"),
    (("certificate has expired",), "its certificate has expired", "renew it; and compare the clocks of both machines"),
    (("CERTIFICATE_VERIFY_FAILED",), "its certificate is signed by an authority unknown here (CERTIFICATE_VERIFY_FAILED)",
     "give --ca-file PEM (telemetry.ca_file) with the authority's certificate"),
    (("CERTIFICATE_REQUIRED", "alert bad certificate", "ALERT_BAD_CERTIFICATE", "alert certificate required", "handshake failure"),
     "it wants a certificate of ours", "give --cert-file and --key-file (telemetry.cert_file, key_file)"),
    (("WRONG_VERSION_NUMBER", "wrong version number", "record layer failure", "UNEXPECTED_MESSAGE"),
     "it speaks no TLS on that port", "use http:// instead of https://"),
    (("Name or service not known", "Temporary failure in name resolution", "nodename nor servname", "No address associated"),
     "that host name is unknown", "mend the host name, or give an address"),
    (("timed out", "Timeout", "timeout"), "it did not answer in time", "open its port for this machine, or narrow --selector"),
    (("Connection refused",), "nothing listens there (connection refused)", "start it, or mend the port"),
    (("No route to host", "unreachable"), "that host cannot be reached", "open its port for this machine, or mend the address"),
    (("complete message body", "IncompleteRead", "incomplete chunked", "ContentDecodingError", "DecodingError"),
     "its answer was cut off", _CUT),
    (("Server disconnected", "Connection aborted", "RemoteDisconnected", "Connection reset", "ILLEGAL_STATUS_LINE", "BadStatusLine"),
     "it hung up without an answer", "try https:// instead of http://, or look at its log"),
)  # fmt: skip


def refusal_of_error(url: str, error: BaseException) -> SourceError:
    """Of a request that brought no answer: what it was, and its own remedy."""
    chain, cause = "", error
    while cause is not None and len(chain) < 4000:  # the outermost often says only that it failed
        chain += f" {type(cause).__name__}: {cause}"
        cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
    for words, seen, mend in _ERRORS:
        if any(word in chain for word in words):
            return SourceError(f"Prometheus at {url} does not answer: {seen}", mend)
    why = " ".join((str(error) or type(error).__name__).split())[:300]
    return SourceError(f"Prometheus at {url} does not answer: {why}", "start it, mend the address, or open its port for this machine")


_LIMITS = ("too many samples", "too many series", "exceed", "max_samples", "-search.max", "limit")
_WRONG = ("it does not take this user, password or token (HTTP 401)", "mend --user and --password-file (telemetry.username, "
          "password_file), --bearer-token-file, or the header")  # fmt: skip


def refuses_size(status: int, text: str) -> bool:
    """Whether this answer says that the question was too large for the server's limits."""
    return status in (400, 413, 422, 500, 503) and any(word in text.lower() for word in _LIMITS)


def refusal_of_answer(url: str, status: int, text: str, location: str = "", known: bool = False) -> SourceError:
    """Of an answer that is not what was asked for. text: of its body; location: where it sends us; known: we said who asks."""
    short = " ".join(text.split())[:200]
    if "HTTP request to an HTTPS server" in text or "plain HTTP request was sent to HTTPS port" in text:
        return SourceError(f"Prometheus at {url} does not answer: it speaks TLS on that port", "use https:// instead of http://")
    if 300 <= status < 400:
        target, _, _ = location.partition("?")[0].partition("/api/v1")
        is_api = location.startswith("http") and "/api/v1" in location
        mend = f"use {target}" if is_api else "a sign-in stands before it: give a token, or the address behind it"
        return SourceError(f"Prometheus at {url} sends us elsewhere (HTTP {status})", mend)
    if "no org id" in text.lower() or "orgid" in text.lower():
        return SourceError(f"Prometheus at {url} serves several tenants: {short}", "give --tenant NAME (telemetry.tenant)")
    if refuses_size(status, text):
        return SourceError(f"Prometheus at {url} refuses so large a question: {short}", "narrow --selector, or raise its query limits")
    if status == 200 and text.lstrip()[:1] == "<":
        mend = "give a token if a sign-in stands before it, or the address of its query API"
        return SourceError(f"Prometheus at {url} answers with a page for people", mend)
    if status == 200 and text.lstrip()[:1] == "{":
        return SourceError(f"Prometheus at {url} does not answer: its answer was cut off", _CUT)
    if status in _ANSWERS:
        seen, mend = _WRONG if known and status == 401 else _ANSWERS[status]
        return SourceError(f"Prometheus at {url} does not answer as a Prometheus does: {seen}", mend)
    why = short if status == 200 else f"HTTP {status}{': ' + short if short else ''}"
    return SourceError(f"Prometheus at {url} does not answer as a Prometheus does: {why or 'empty'}", "give the address of its query API")
