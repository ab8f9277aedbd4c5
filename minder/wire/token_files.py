"""Token files that a running process goes on reading: a token is exchanged without a restart.

One thread of the process looks at all of its token files every two seconds; requests take what was read last, so a
file system that hangs delays an exchange and nothing else. A file that cannot be used any more keeps its last tokens, with one
line in the log: a half-written file must not lock a controller out. To take a token away, exchange it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from pathlib import Path

from minder.model.errors import ConfigError
from minder.model.log import event
from minder.wire.tokens import Tokens, is_authorised, machine_of, read_tokens

__all__ = ["Token", "TokenFile", "admits", "tokens_of"]

_log = logging.getLogger("minder.tokens")
_EVERY_S = 2.0


class TokenFile:
    """One file and its tokens. machine: whose it must be, where its token names a machine. Raises ConfigError as `read_tokens`."""

    def __init__(self, path: str | os.PathLike[str], machine: str | None = None) -> None:
        self.path, self.machine = Path(path), machine
        self._stamp = _stamp(self.path)
        self._said = ""
        self._tokens = self._read()
        _watch.add(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenFile) and (self.path, self.machine) == (other.path, other.machine)

    def __hash__(self) -> int:
        return hash((self.path, self.machine))

    def __repr__(self) -> str:
        return f"TokenFile({str(self.path)!r})"

    @property
    def current(self) -> str:
        return self._tokens.current

    def in_force(self) -> tuple[str, ...]:
        """The newest first, and the one before it as long as that counts."""
        return self._tokens.in_force(time.time())

    def look(self) -> None:
        """Read it again if it has changed. Raises nothing: what cannot be used changes nothing, and is logged once."""
        stamp = _stamp(self.path)
        if stamp == self._stamp and not self._said:
            return
        try:
            self._tokens = self._read()
        except ConfigError as error:
            if str(error) != self._said:
                event(_log, logging.WARNING, "token file not usable", path=self.path, detail=f"{error}; its last tokens still count")
            self._said, self._stamp = str(error), stamp
            return
        event(_log, logging.INFO, "token file read again", path=self.path)
        self._said, self._stamp = "", stamp

    def _read(self) -> Tokens:
        found = read_tokens(self.path)
        named = machine_of(found.current)
        if self.machine is not None and named is not None and named != self.machine:
            raise ConfigError(f"token file {self.path} holds the token of {named}, not of {self.machine}: put that machine's own there")
        return found


Token = str | TokenFile  # a file's can change while it is used


def tokens_of(token: Token) -> tuple[str, ...]:
    """What counts now, the newest first."""
    return (token,) if isinstance(token, str) else token.in_force()


def admits(token: Token, header: str | None) -> bool:
    """Whether an Authorization header carries it, or the one before it while that counts."""
    return any(is_authorised(header, text) for text in tokens_of(token))


class _Watch:
    """Looks at every token file that is in use. Its thread begins with the first, and ends no process."""

    def __init__(self) -> None:
        self._files: dict[int, weakref.ref[TokenFile]] = {}  # by identity: two that are equal are both looked at
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, file: TokenFile) -> None:
        with self._lock:
            key = id(file)
            self._files[key] = weakref.ref(file, lambda gone: self._files.pop(key, None))
            if self._thread is None or not self._thread.is_alive():  # also in a child that was forked
                self._thread = threading.Thread(target=self._run, name="minder-tokens", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(_EVERY_S)
            with self._lock:
                known = list(self._files.values())
            for each in known:
                if (file := each()) is not None:
                    file.look()
                del file


def _stamp(path: Path) -> tuple[int, int, int, int]:
    """What changes with the file's content or mode: a mode that is mended counts too."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


_watch = _Watch()
