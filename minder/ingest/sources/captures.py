"""Where a recording keeps its captures of the job's processes, and from when on each is known (docs/recordings.md)."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["CaptureFolder", "find_captures"]

_log = logging.getLogger(__name__)
_MOMENT = re.compile(r"^(\d{8}T\d{6})(\.\d{1,6})?Z$")


@dataclass(frozen=True, slots=True)
class CaptureFolder:
    """One capture on disk, not read yet. time_s: when it was taken; nothing of it was known before."""

    path: Path
    time_s: float


def find_captures(folder: Path, last_s: float | None) -> tuple[CaptureFolder, ...]:
    """The captures in `stacks/` or `collectives/`, oldest first; none where the folder is missing or empty.

    A flat folder is one capture, known at last_s (the recording's end; None: when its newest file was written). A sub-folder whose
    name is no time is left out with one warning for all of them.
    """
    if not folder.is_dir():
        return ()
    entries = sorted(folder.iterdir())
    inner = [entry for entry in entries if entry.is_dir()]
    timed = {entry: _time_s(entry.name) for entry in inner}
    nameless = [entry.name for entry, time_s in timed.items() if time_s is None]
    if nameless:
        _log.warning("%s: not a time, ignored: %s (name captures like 20260302T061231Z)", folder, ", ".join(nameless[:10]))
    found = [CaptureFolder(entry, time_s) for entry, time_s in timed.items() if time_s is not None]
    files = [entry for entry in entries if entry.is_file() and not entry.name.startswith(".")]
    if not found and files:
        return (CaptureFolder(folder, max(file.stat().st_mtime for file in files) if last_s is None else last_s),)
    return tuple(sorted(found, key=lambda capture: capture.time_s))


def _time_s(name: str) -> float | None:
    match = _MOMENT.match(name)
    if match is None:
        return None
    try:
        whole = datetime.strptime(match[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:  # digits, but no day or hour
        return None
    return whole.timestamp() + float(match[2] or 0.0)
