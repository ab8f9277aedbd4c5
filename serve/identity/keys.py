"""The identity provider's public keys: read from a file or fetched, remembered, and fetched again when a new one is named.

Only the configured address is called; no redirect is followed. While it does not answer, known keys count for a day.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from minder.model.errors import ConfigError
from serve.identity.discovery import Discovery
from serve.identity.fetch import MOST_BYTES, Fetcher, FetchError
from serve.identity.oidc_settings import OidcSettings

__all__ = ["KeyRing", "NoKeysError"]

_log = logging.getLogger("minder.serve")
_MOST_KEYS = 100
_RETRY_S = 15.0
_STALE_S = 86_400.0
_LEAST_RSA_BITS = 2048
_KINDS = {"R": "RSA", "P": "RSA", "E": "EC"}


@dataclass(frozen=True, slots=True)
class _Key:
    """kind: RSA, EC or OKP. algorithm: the only one that it may sign with, if it says so."""

    public: Any
    kind: str
    algorithm: str | None

    def fits(self, algorithm: str) -> bool:
        kind = "OKP" if algorithm == "EdDSA" else _KINDS[algorithm[0]]
        return self.kind == kind and self.algorithm in (None, algorithm)


class NoKeysError(Exception):
    """The provider cannot be asked, and nothing is remembered."""


class KeyRing:
    """Safe for several threads: one of them fetches, the others go on with what is known. clock: seconds, never backwards."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.monotonic, discovery: Discovery | None = None) -> None:
        """Raises ConfigError for a ca_file or jwks_file that cannot be used."""
        self._settings, self._clock = settings, clock
        self._discovery = discovery or Discovery(settings, Fetcher(settings), clock)
        self._lock = threading.Lock()
        self._busy = False
        self._keys: dict[str, _Key] = {}
        self._read_s = self._tried_s = float("-inf")
        if settings.jwks_file is not None and not self._refresh():
            raise ConfigError(f"oidc.jwks_file {settings.jwks_file} holds no usable key")

    def find(self, kid: str | None, algorithm: str, *, at_once: bool = False) -> Any:
        """The public key that signs with this algorithm under this id; without an id, the only one there is; None for no such key.

        at_once: the id comes from the provider itself, so an unknown one is asked for without waiting. Raises NoKeysError.
        """
        if self._clock() - self._read_s > self._settings.cache_s:
            self._try_refresh()
        found = self._pick(kid, algorithm)
        if found is None:  # the provider may have begun to use a new one
            self._try_refresh(at_once)
            found = self._pick(kid, algorithm)
        if self._clock() - self._read_s > _STALE_S:
            raise NoKeysError
        return found

    def _pick(self, kid: str | None, algorithm: str) -> Any:
        fitting = [key for name, key in self._keys.items() if key.fits(algorithm) and kid in (None, name)]
        return fitting[0].public if len(fitting) == 1 else None

    def _try_refresh(self, at_once: bool = False) -> None:
        with self._lock:
            if self._busy or (self._clock() - self._tried_s < _RETRY_S and not at_once):
                return
            self._busy = True
        try:
            self._refresh()
        finally:
            self._busy = False

    def _refresh(self) -> bool:
        self._tried_s = self._clock()
        try:
            found = _usable(self._read())
        except (FetchError, OSError, ValueError, RecursionError) as error:
            why = str(error) if isinstance(error, FetchError) else type(error).__name__
            _log.warning("oidc: the keys of %s cannot be read: %s", self._settings.issuer, why)
            return False
        if not found:
            _log.warning("oidc: %s has no usable key", self._settings.issuer)
            return False
        self._keys, self._read_s = found, self._clock()
        return True

    def _read(self) -> Any:
        if self._settings.jwks_file is not None:
            path = Path(self._settings.jwks_file)
            if path.stat().st_size > MOST_BYTES:
                raise ValueError("too large")
            return json.loads(path.read_text(encoding="utf-8"))
        return self._discovery.fetcher.get(self._settings.jwks_url or self._discovery.endpoints().keys)


def _usable(document: Any) -> dict[str, _Key]:
    """Public keys for signatures; never a shared secret, never a short RSA key. Raises ValueError."""
    listed = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(listed, list):
        raise ValueError("no JWKS")
    found: dict[str, _Key] = {}
    for item in listed[:_MOST_KEYS]:
        if not isinstance(item, Mapping) or item.get("kty") not in ("RSA", "EC", "OKP") or item.get("use", "sig") != "sig":
            continue
        try:
            public = jwt.PyJWK(dict(item)).key
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        if isinstance(public, RSAPublicKey) and public.key_size < _LEAST_RSA_BITS:
            continue
        found[str(item.get("kid", f"unnamed {len(found)}"))] = _Key(public, str(item["kty"]), item.get("alg"))
    return found
