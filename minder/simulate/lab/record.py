"""What a lab has created and who owns it, written down before it is created, so that a kill -9 leaves nothing unknown."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from minder.model.private import make_private, open_private, write_private

__all__ = ["LAB_NAME", "RUN_ID", "LabRecord", "Owner", "default_state_dir", "read_records"]

# Every kernel object of a lab is called mdr + four hex digits + something.
RUN_ID = re.compile(r"^[0-9a-f]{4}$")
LAB_NAME = re.compile(r"^mdr([0-9a-f]{4})[a-z]")


def default_state_dir() -> Path:
    """$MINDER_STATE_DIR, else $XDG_STATE_HOME/minder, else ~/.local/state/minder."""
    if chosen := os.environ.get("MINDER_STATE_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "minder"


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that runs a lab. A pid alone may be reused, so its start time (clock ticks since boot) belongs to it."""

    pid: int
    start_ticks: int
    pid_namespace: str

    @classmethod
    def current(cls) -> Owner:
        pid = os.getpid()
        return cls(pid, start_ticks(pid) or 0, _pid_namespace())

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        parts = text.split(":")
        if len(parts) != 3 or not parts[0].isdigit() or not parts[1].isdigit():
            return None
        return cls(int(parts[0]), int(parts[1]), parts[2])

    @property
    def alive(self) -> bool:
        """Is it still there? An owner in another pid namespace cannot be looked up: it counts as alive."""
        if self.pid_namespace != _pid_namespace():
            return True
        return start_ticks(self.pid) == self.start_ticks

    def __str__(self) -> str:
        return f"{self.pid}:{self.start_ticks}:{self.pid_namespace}"


@dataclass(slots=True)
class LabRecord:
    """One lab's entry in the state folder: <state>/labs/<run id>.json."""

    run_id: str
    mode: str
    owner: str
    root_dir: str
    machines: list[str] = field(default_factory=list)
    subnets: list[str] = field(default_factory=list)
    processes: list[tuple[int, int]] = field(default_factory=list)  # (pid of the group's leader, start ticks)

    def create(self, state_dir: Path) -> bool:
        """Claim the run id; False if another lab has it already."""
        path = self.path(state_dir)
        make_private(path.parent)
        try:
            with open_private(path, "x", encoding="utf-8") as file:
                json.dump(asdict(self), file)
        except FileExistsError:
            return False
        return True

    def save(self, state_dir: Path) -> None:
        """Replace the entry in one step."""
        path = self.path(state_dir)
        fresh = path.with_suffix(".new")
        write_private(fresh, json.dumps(asdict(self)))
        fresh.replace(path)

    def remove(self, state_dir: Path) -> None:
        self.path(state_dir).unlink(missing_ok=True)

    def path(self, state_dir: Path) -> Path:
        return state_dir / "labs" / f"{self.run_id}.json"


def read_records(state_dir: Path) -> Iterator[LabRecord]:
    """All entries that can be read. A half-written one has a lab behind it that is found by its kernel objects instead."""
    for path in sorted((state_dir / "labs").glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            content["processes"] = [(int(pid), int(ticks)) for pid, ticks in content["processes"]]
            record = LabRecord(**content)
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if RUN_ID.match(record.run_id) and record.run_id == path.stem:
            yield record


def start_ticks(pid: int) -> int | None:
    """When a living process started, in clock ticks since boot; None if it is gone or a zombie."""
    fields = stat_fields(pid)
    return None if not fields or fields[0] in "ZX" else int(fields[19])


def process_state(pid: int) -> str:
    """The state letter of a process (proc(5)), "" if it is gone."""
    fields = stat_fields(pid)
    return fields[0] if fields else ""


def stat_fields(pid: int) -> list[str]:
    """/proc/<pid>/stat from the state letter on; empty if the process is gone. The name before it may hold spaces and brackets."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text[text.rfind(")") + 2 :].split()


def _pid_namespace() -> str:
    try:
        return re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        return "0"
