"""Sign-ins that have begun and whose people are at the identity provider: each can be finished once, in the browser that began it.

They are kept in memory and not in the ledger's database, since anybody can begin one: strangers write nothing there.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["KEPT_S", "Begun", "PendingSignIns"]

KEPT_S = 600.0
_MOST = 2_000


@dataclass(frozen=True, slots=True)
class Begun:
    """state goes to the provider and back, browser into a cookie, nonce comes back inside of the ID token; verifier stays here until
    the code is handed in (PKCE). wanted: the page to go on to."""

    state: str
    browser: str
    nonce: str
    verifier: str
    wanted: str
    until_s: float

    @property
    def challenge(self) -> str:
        """S256 of the verifier (RFC 7636)."""
        return base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()


class PendingSignIns:
    """At most 2,000, the newest; each for ten minutes. clock: seconds, never backwards."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, Begun] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, wanted: str) -> Begun:
        state, browser, nonce = (secrets.token_urlsafe(32) for _ in range(3))
        begun = Begun(state, browser, nonce, secrets.token_urlsafe(48), wanted, self._clock() + KEPT_S)
        with self._lock:
            self._kept[state] = begun
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        return begun

    def take(self, state: str, browser: str) -> Begun | None:
        """The sign-in with this state, if this browser began it and it is not too old; a second time there is none."""
        with self._lock:
            begun = self._kept.pop(state, None)
        if begun is None or self._clock() > begun.until_s:
            return None
        same = hmac.compare_digest(begun.browser.encode(), browser.encode("utf-8", "surrogatepass"))
        return begun if same else None

    def __len__(self) -> int:
        return len(self._kept)
