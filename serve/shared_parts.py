"""Parts of pages that are the same for everybody who may see them: built once for each state of what they show, however many look."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass

__all__ = ["Part", "SharedParts"]

_MOST = 64


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of an answer, and the ETag that stands for them."""

    body: bytes
    tag: str

    @classmethod
    def of(cls, body: bytes) -> Part:
        return cls(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


class SharedParts:
    """Thread-safe. One part is built at a time (two threads of one interpreter are no faster), and who asks meanwhile waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Hashable, tuple[Hashable, Part]] = {}

    def get(self, key: Hashable, state: Callable[[], Hashable], build: Callable[[], bytes]) -> Part:
        """state: cheap, and another one whenever `build` would build something else; it is asked before every answer."""
        with self._lock:
            now = state()
            kept = self._kept.pop(key, None)
            if kept is None or kept[0] != now:
                kept = (now, Part.of(build()))
            self._kept[key] = kept
            while len(self._kept) > _MOST:  # what was not asked for longest
                del self._kept[next(iter(self._kept))]
            return kept[1]
