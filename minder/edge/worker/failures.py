"""Whose fault an exception is, its reporter's own or the echo of a peer's death, and the identity that it is known by. No torch.

A rank whose peer dies sees its connection break, its store vanish or its watchdog bark. Such a rank is a victim: its
words never accuse it (ByteRobust, arXiv 2509.16293, keeps user-space errors apart from what a peer's loss drags along).
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path
from types import FrameType, TracebackType

from minder.edge.signals.exceptions import Disk, classify_exception
from minder.edge.worker.cause import errno_of, said, speaking

__all__ = ["Interrupted", "NonFiniteGradient", "disk_of", "fingerprint", "is_victim"]

_FRAMES = 3
_NAMED_FILE = re.compile(r"\[Errno \d+\] [^\n:]*: '(?P<path>/[^'\n]+)'")
_NETWORK_FILE_SYSTEMS = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "gpfs",
    "mmfs",
    "ceph",
    "beegfs",
    "wekafs",
    "fuse",
    "9p",
    "afs",
    "glusterfs",
    "pvfs2",
    "orangefs",
    "daos",
    "panfs",
    "ocfs2",
    "gfs2",
    "cvfs",
    "virtiofs",
    "coda",
    "ncpfs",
)
_NETWORK_DEVICES = ("/dev/rbd", "/dev/nbd", "/dev/drbd")
_NO_DISKS = frozenset(
    {
        "proc", "sysfs", "devtmpfs", "devpts", "tmpfs", "ramfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "mqueue",
        "autofs", "hugetlbfs", "configfs", "fusectl", "rpc_pipefs", "nsfs", "bpf", "pstore", "efivarfs", "binfmt_misc",
    }
)  # fmt: skip


class Interrupted(BaseException):
    """Raised in the main thread to bring it back to the barrier. Not an Exception: a script's own `except` lets it pass."""


class NonFiniteGradient(RuntimeError):
    """This rank's own gradient, before the all-reduce, holds a NaN or an infinity."""

    reported = False  # the launcher knows already


def is_victim(type_name: str, message: str) -> bool:
    """Whether an exception reports a peer's or the store's loss rather than of a fault of its own.

    >>> is_victim("RuntimeError", "[../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:39089")
    True
    >>> is_victim("RuntimeError", "CUDA out of memory. Tried to allocate 2.00 GiB")
    False
    """
    return classify_exception(type_name, message).kind == "victim"


def fingerprint(error: BaseException) -> str:
    """The same for one bug on every rank, machine and run: type, library and error code, and the innermost own frames as module:function.

    Of a chain or a group it is that of the exception that speaks. No lines, numbers, paths or ranks are in it. "" where an exception has
    no structure at all to be known by: a bare exit.
    """
    error = speaking(error)
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        return ""
    name, text = said(error)
    whose = classify_exception(name, text, errno=errno_of(error))
    frames = [f"{module}:{function}" for module, function in user_frames(error.__traceback__)[-_FRAMES:]]
    return "|".join([name, f"{whose.library}:{whose.code}", "<".join(reversed(frames))])


def user_frames(trace: TracebackType | None) -> list[tuple[str, str]]:
    """Frames (module, function) outside the standard library, installed packages and minder, outermost first; all frames if none is."""
    frames = [frame for frame, _ in traceback.walk_tb(trace)]
    own = [frame for frame in frames if not _is_foreign(frame.f_code.co_filename)] or frames
    return [(_module(frame), frame.f_code.co_qualname) for frame in own]


def traceback_tail(error: BaseException, lines: int = 20) -> str:
    """The end of the traceback as Python would print it."""
    return "\n".join("".join(traceback.format_exception(error)).rstrip().splitlines()[-lines:])


def disk_of(error: BaseException, mounts: Path = Path("/proc/mounts")) -> Disk | None:
    """Whether the file that an OSError names lies on a disk of this machine or of a server; None where that cannot be known, and where it
    lies on no disk: a terminal that was closed answers EIO too. A data loader's process hands on the text alone, so the name may stand
    there."""
    name = getattr(error, "filename", None)
    if not isinstance(name, str):
        quoted = _NAMED_FILE.search(said(error)[1])
        name = quoted["path"] if quoted else None
    if not isinstance(error, OSError) or not isinstance(name, str):
        return None
    try:
        path = str(Path(name).resolve())
        rows = [line.split() for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines()]
    except (OSError, RuntimeError):
        return None
    found = [row for row in rows if len(row) > 2 and (path == row[1] or path.startswith(row[1].rstrip("/") + "/"))]
    if not found:
        return None
    device, _, kind, *_ = max(found, key=lambda row: len(row[1]))
    if kind in _NO_DISKS:
        return None
    return "network" if kind.startswith(_NETWORK_FILE_SYSTEMS) or device.startswith(_NETWORK_DEVICES) else "local"


def _module(frame: FrameType) -> str:
    """The script itself is known by its file's name, whatever it is started as."""
    name = str(frame.f_globals.get("__name__") or "")
    return Path(frame.f_code.co_filename).stem if name in ("", "__main__", "<run_path>") else name


_PATHS = sysconfig.get_paths()
_FOREIGN = (_PATHS["stdlib"], _PATHS["platstdlib"], _PATHS["purelib"], _PATHS["platlib"], str(Path(__file__).parents[1]) + "/worker")


def _is_foreign(filename: str) -> bool:
    return filename.startswith(("<frozen", "<string>")) or filename.startswith(_FOREIGN)
