"""What the identity provider says of itself: its discovery document, asked for when it is needed, remembered for a while."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from serve.identity.fetch import Fetcher, FetchError
from serve.identity.oidc_settings import OidcSettings
from serve.notify.targets import demand_address

__all__ = ["Discovery", "Endpoints"]

_log = logging.getLogger("minder.serve")
_RETRY_S = 15.0


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of one provider. end_session: where people sign out there. in_form: a client's secret goes into the form, since it takes
    no HTTP basic authentication. names_itself: its answers to the browser carry its name (RFC 9207), so one without it is not its."""

    keys: str
    authorization: str | None
    token: str | None
    end_session: str | None
    in_form: bool
    names_itself: bool


class Discovery:
    """Safe for several threads: one asks, the others wait for what it learns. clock: seconds, never backwards."""

    def __init__(self, settings: OidcSettings, fetcher: Fetcher, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self.fetcher, self._clock = settings, fetcher, clock
        self._lock = threading.Lock()
        self._known: Endpoints | None = None
        self._read_s = self._failed_s = float("-inf")
        self._why = ""

    def endpoints(self) -> Endpoints:
        """Raises FetchError; for 15 s after a failure at once, without asking again."""
        with self._lock:
            if self._known is not None and self._clock() - self._read_s <= self._settings.cache_s:
                return self._known
            if self._clock() - self._failed_s < _RETRY_S:
                raise FetchError(self._why)
            try:
                self._known = _checked(self._settings, self.fetcher.get(self._settings.discovery_address))
            except FetchError as error:
                self._failed_s, self._why = self._clock(), str(error)
                _log.warning("oidc: the discovery document of %s: %s", self._settings.issuer, error)
                raise
            self._read_s = self._clock()
            return self._known


def _checked(settings: OidcSettings, document: Any) -> Endpoints:
    """Raises FetchError for one that is another issuer's, or that names an address it must not."""
    if not isinstance(document, Mapping) or document.get("issuer") != settings.issuer:
        raise FetchError("its discovery document is of another issuer")
    methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    return Endpoints(
        keys=_address(settings, document, "jwks_uri") or "",
        authorization=_address(settings, document, "authorization_endpoint"),
        token=_address(settings, document, "token_endpoint"),
        end_session=_address(settings, document, "end_session_endpoint"),
        in_form=isinstance(methods, list) and "client_secret_basic" not in methods and "client_secret_post" in methods,
        names_itself=document.get("authorization_response_iss_parameter_supported") is True,
    )


def _address(settings: OidcSettings, document: Mapping[str, Any], key: str) -> str | None:
    """Encrypted where the issuer is: no document leads out of TLS."""
    found = document.get(key)
    if found is None and key != "jwks_uri":
        return None
    try:
        demand_address(str(found), key)
        parts = urlsplit(str(found))
    except ValueError:
        raise FetchError(f"its discovery document has no usable {key}") from None
    if parts.fragment or (urlsplit(settings.discovery_address).scheme == "https" and parts.scheme != "https"):
        raise FetchError(f"its discovery document has no usable {key}")
    return str(found)
