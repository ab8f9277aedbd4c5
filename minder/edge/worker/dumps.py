"""The last collectives of this process, where its machine's agent finds them: PyTorch's Flight Recorder, written by a thread of its own.

The thread writes `<run dir>/dumps/pid-<pid>` every ten seconds, so that a rank that dies or freezes leaves its last one, and at once
when the agent asks (it touches `<run dir>/dumps/ask`). A main thread that hangs in a collective does not matter; one that holds the
interpreter's lock for ever leaves what was written before. A dump takes about ten milliseconds. Whatever goes wrong is counted.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minder.edge.worker.pulse import default_run_dir
from minder.model.private import make_meeting, open_meeting

__all__ = ["keep_dumps", "lost"]

_EVERY_S, _LOOK_S = 10.0, 0.25
_ENTRIES = "1000"
_MOST_BYTES = 4 << 20
_MOST_FILES, _OLD_S = 64, 3600.0

_DUMP_ERRORS = (OSError, ValueError, RuntimeError, AttributeError, TypeError)  # a full disk, a group that ends, another version's recorder

_lost = 0
_keeper_pid = 0


def keep_dumps() -> None:
    """Keep this process's dumps from now on; call it before the first process group is made. Never raises; a second call does nothing.

    A worker of `minder launch` does so by itself. The recorder remembers the last 1,000 collectives, or what TORCH_FR_BUFFER_SIZE says.
    """
    global _keeper_pid
    if _keeper_pid == os.getpid():
        return
    _keeper_pid = os.getpid()
    if "TORCH_NCCL_TRACE_BUFFER_SIZE" not in os.environ:
        os.environ.setdefault("TORCH_FR_BUFFER_SIZE", _ENTRIES)
    try:
        threading.Thread(target=_Keeper(default_run_dir() / "dumps").run, name="minder-dumps", daemon=True).start()
    except RuntimeError:  # no more threads: the job goes on without
        _count_lost()


def lost() -> int:
    """Dumps that could not be written."""
    return _lost


@dataclass(slots=True)
class _Keeper:
    folder: Path
    place: tuple[str, str] = ("", "")  # rank and generation
    since_s: float = field(default_factory=time.time)  # nothing of this generation was launched before
    looked_s: float = field(default_factory=time.time)
    written_s: float = 0.0
    asked_ns: int = 0

    def run(self) -> None:
        _tidy(self.folder)
        self.asked_ns = self._newest_ask()
        while True:
            time.sleep(_LOOK_S)
            try:
                self._look()
            except _DUMP_ERRORS:
                _count_lost()

    def _look(self) -> None:
        place = os.environ.get("RANK", ""), os.environ.get("MINDER_GENERATION", "")
        if place != self.place:
            self.place, self.since_s = place, self.looked_s
        self.looked_s = time.time()
        asked_ns = self._newest_ask()
        if asked_ns != self.asked_ns or self.looked_s - self.written_s >= _EVERY_S:
            self.asked_ns = asked_ns
            if self._write():
                self.written_s = self.looked_s

    def _newest_ask(self) -> int:
        try:
            return (self.folder / "ask").stat().st_mtime_ns
        except OSError:
            return 0

    def _write(self) -> bool:
        time_s, data = time.time(), _dump()
        if data is None:
            return False
        if len(data) > _MOST_BYTES:
            raise ValueError("the dump is too large to keep")
        rank, generation = (int(text) if text.isdigit() else None for text in self.place)
        header: dict[str, Any] = {"pid": os.getpid(), "job": os.environ.get("MINDER_JOB"), "rank": rank, "generation": generation}
        header |= {"time_s": time_s, "since_s": self.since_s}
        make_meeting(self.folder.parent, self.folder.name)
        hidden = self.folder / f".pid-{os.getpid()}"
        with open_meeting(hidden, "wb") as file:
            file.write(json.dumps(header).encode() + b"\n" + data)
        hidden.rename(self.folder / f"pid-{os.getpid()}")
        return True


def _dump() -> bytes | None:
    """The recorder's own pickle, without stack traces; None while there is nothing to record. torch is never loaded for it."""
    distributed: Any = sys.modules.get("torch.distributed")
    recorder: Any = sys.modules.get("torch._C._distributed_c10d")
    if distributed is None or recorder is None or not distributed.is_initialized():
        return None
    device = hasattr(recorder, "_dump_nccl_trace") and "nccl" in str(distributed.get_backend())
    dump = recorder._dump_nccl_trace if device else recorder._dump_fr_trace
    return bytes(dump(True, False, False))


def _tidy(folder: Path) -> None:
    """What processes that are long gone have left; the newest are kept for a while."""
    try:
        files = sorted(folder.glob("*pid-*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for place, path in enumerate(files):
            if place >= _MOST_FILES or path.stat().st_mtime < time.time() - _OLD_S:
                path.unlink()
    except OSError:  # another process of the machine tidies too
        return


def _count_lost() -> None:
    global _lost
    _lost += 1
