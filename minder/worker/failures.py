"""Whose fault an exception is: its reporter's own, or the echo of a peer's death. Pure, light, no torch.

A rank whose peer dies sees its connection break, its store vanish or its watchdog bark. Such a rank is a victim: its
words never accuse it (ByteRobust section 4 keeps user-space errors apart from what a peer's loss drags along).
"""

from __future__ import annotations

import hashlib
import re
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

__all__ = ["Interrupted", "NonFiniteGradient", "fingerprint", "is_victim"]


class Interrupted(BaseException):
    """Raised in the main thread to bring it back to the barrier. Not an Exception: a script's own `except` lets it pass."""


class NonFiniteGradient(RuntimeError):
    """This rank's own gradient, before the all-reduce, holds a NaN or an infinity."""

    told = False  # the launcher knows already


_PEER_TYPES = frozenset(
    {
        "ConnectionResetError", "ConnectionAbortedError", "BrokenPipeError", "ConnectionRefusedError", "EOFError",
        "DistNetworkError", "DistStoreError", "RendezvousConnectionError", "SignalException",
    }
)  # fmt: skip

_COLLECTIVE_TYPES = frozenset({"DistBackendError", "RuntimeError", "DistError", "TimeoutError", "OSError", "Interrupted"})

_PEER_WORDS = re.compile(
    r"""connection\ (was\ )?(closed\ by|reset\ by|refused\ by)\ (remote\ )?peer | connection\ reset | broken\ pipe
    | remote\ peer\ closed | socket\ (timeout|closed|is\ closed) | software\ caused\ connection\ abort
    | gloo.*(timed?\ ?out|connect|read\ error|writev|recv|unboundbuffer|closed|shut) | connectfullmesh | failed\ to\ connect
    | timed\ out\ waiting.*(recv|send|operation) | application\ timeout\ caused\ pair\ closure
    | watchdog.*(timeout|timed\ out|caught\ collective) | collective\ operation\ timeout | ncclremoteerror | remote\ process\ exited
    | last\ error:.*(net|socket|remote) | ncclsystemerror.*(socket|connect|peer) | nccl\ communicator\ was\ aborted
    | (nccl|process\ ?group|work).*\b(was\ |been\ )?aborted
    | another\ rank | heartbeat\ monitor\ timed\ out | monitoredbarrier | barrier\ timeout
    | tcpstore | store.*(timeout|timed\ out|wait) | wait\ timeout\ after | failed\ to\ recv,\ got\ 0\ bytes
    | recvvalue\ failed | sendbytes\ failed | waitforinput | rendezvous
    | rpc.*(timeout|timed\ out|unavailable|connection|eof) | eof:\ end\ of\ file | transport\ is\ closed | no\ route\ to\ host
    | network\ is\ unreachable | connection\ timed\ out | signals?\.?\s*(received|15)?.*sigterm | sigterm | got\ signal:\ 15
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)

_OWN_WORDS = re.compile(
    r"""out\ of\ memory | cuda\ error | illegal\ memory | device-side\ assert | cublas | cudnn | ecc\ error | xid
    | expected\ (scalar|tensor|all|input|object) | size\ mismatch | shapes?\ cannot | not\ finite | \bnan\b | index\ out\ of
    | address\ already\ in\ use | no\ space\ left | ncclinvalidusage | invalid\ argument | ncclunhandledcudaerror | unhandled\ cuda
    """,
    re.IGNORECASE | re.VERBOSE,
)


def is_victim(type_name: str, message: str) -> bool:
    """Whether an exception tells of a peer's or the store's loss rather than of a fault of its own.

    >>> is_victim("RuntimeError", "[../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:39089")
    True
    >>> is_victim("RuntimeError", "CUDA out of memory. Tried to allocate 2.00 GiB")
    False
    """
    name = type_name.rsplit(".", 1)[-1]
    if name in _PEER_TYPES:
        return True
    if name not in _COLLECTIVE_TYPES:
        return False
    if _OWN_WORDS.search(message) and not re.search(r"by (remote )?peer|watchdog|ncclRemoteError", message, re.IGNORECASE):
        return False
    return _PEER_WORDS.search(message) is not None


def fingerprint(error: BaseException) -> str:
    """The same for one bug on every rank: exception type and the innermost three frames of the user's own code."""
    frames = user_frames(error.__traceback__)[-3:]
    text = type(error).__name__ + "".join(f"|{Path(name).name}:{line}:{function}" for name, line, function in frames)
    return f"{type(error).__name__}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def user_frames(trace: TracebackType | None) -> list[tuple[str, int, str]]:
    """Frames (file, line, function) outside the standard library, installed packages and minder; all frames if none is."""
    frames = [(frame.filename, frame.lineno or 0, frame.name) for frame in traceback.extract_tb(trace)]
    return [frame for frame in frames if not _is_foreign(frame[0])] or frames


def traceback_tail(error: BaseException, lines: int = 20) -> str:
    """The end of the traceback as Python would print it."""
    return "\n".join("".join(traceback.format_exception(error)).rstrip().splitlines()[-lines:])


_PATHS = sysconfig.get_paths()
_FOREIGN = (_PATHS["stdlib"], _PATHS["platstdlib"], _PATHS["purelib"], _PATHS["platlib"], str(Path(__file__).parents[1]) + "/worker")


def _is_foreign(filename: str) -> bool:
    return filename.startswith(("<frozen", "<string>")) or filename.startswith(_FOREIGN)
