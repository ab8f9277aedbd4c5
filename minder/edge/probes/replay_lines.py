"""What a rank of a replayed job writes down as it goes, a line each, and what that says of one run.

`begin` once it has met the other ranks; `STEP HASH` after each step; `end` after the last; `nan TEXT` or `fail TEXT` where it stops. A rank
that is killed leaves what it had written by then. A script of the job's own writes the same lines (minder.edge.worker.replay_plan).
"""

from __future__ import annotations

from pathlib import Path

from minder.model.replay import RankRun

__all__ = ["read_run", "write_begin", "write_end", "write_failure", "write_nan", "write_step"]

_LONGEST = 200
_LATE = ("timed out", "timeout")


def write_begin(path: Path) -> None:
    _write(path, "begin")


def write_step(path: Path, step: int, digest: str) -> None:
    _write(path, f"{step} {digest}")


def write_end(path: Path) -> None:
    _write(path, "end")


def write_nan(path: Path, text: str) -> None:
    _write(path, f"nan {_line(text)}")


def write_failure(path: Path, text: str) -> None:
    _write(path, f"fail {_line(text)}")


def read_run(path: Path, steps: int, *, ended: bool = False, late: bool = False, detail: str = "") -> RankRun:
    """steps: that were asked for; what becomes of a process after the last of them says nothing. ended: it ended by itself, without a
    failure. late: it was ended after its time. detail: what is known of its end besides."""
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    words = [line.partition(" ") for line in lines]
    hashes = tuple(text for word, _, text in words if word.isdigit())
    said = next((text for word, _, text in words if word in ("nan", "fail")), "")
    if any(word == "nan" for word, _, _ in words):
        return RankRun("nan", True, hashes, said)
    if "end" in lines or len(hashes) >= steps or (ended and lines):
        return RankRun("finished", True, hashes)
    hangs = late or any(word in said.lower() for word in _LATE)
    return RankRun("hang" if hangs else "crash", bool(lines), hashes, said or detail)


def _write(path: Path, line: str) -> None:
    with path.open("a") as stream:
        stream.write(line + "\n")


def _line(text: str) -> str:
    return (text.splitlines() or [""])[0][:_LONGEST]
