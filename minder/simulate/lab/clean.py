"""Removing a lab: the end of every lab, and what `minder lab clean` does for those whose owner was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from minder.model.errors import BadInputError, LabError
from minder.simulate.lab.cgroup import Cgroup, find_layout
from minder.simulate.lab.machine import MEMORY
from minder.simulate.lab.network import has_program, lab_links, lab_namespaces, remove_network
from minder.simulate.lab.processes import LAB_VARIABLE, OWNER_VARIABLE, all_pids, end_processes, marked_processes, read_mark
from minder.simulate.lab.record import LAB_NAME, RUN_ID, LabRecord, Owner, default_state_dir, read_records, start_ticks

__all__ = ["CleanReport", "clean_labs", "remove_lab"]


@dataclass(slots=True)
class CleanReport:
    """What was removed, by run id, and the labs that were left alone because their owner lives."""

    removed: dict[str, list[str]] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)


def clean_labs(state_dir: Path | None = None) -> CleanReport:
    """Remove every lab whose owner is gone, known by its record, by its links' names, its cgroups or its processes' environment.

    A lab whose owner lives (same pid, same start time) is never touched. Raises LabError if something cannot be removed.
    """
    state_dir = state_dir or default_state_dir()
    report = CleanReport()
    for run_id, owners in sorted(_find_settled(state_dir).items()):
        if any(owner.alive for owner in owners):
            report.running.append(run_id)
            continue
        record = next((record for record in read_records(state_dir) if record.run_id == run_id), None)
        report.removed[run_id] = remove_lab(run_id, record)
        (state_dir / "labs" / f"{run_id}.json").unlink(missing_ok=True)
    return report


def remove_lab(run_id: str, record: LabRecord | None = None) -> list[str]:
    """End a lab's processes; delete its memory, cgroups, namespaces, links. Returns what it found. Raises LabError if some is left."""
    if not RUN_ID.match(run_id):
        raise BadInputError(f"a lab's run id is four hex digits such as 3fa2; got {run_id!r}")  # a shorter one would match other labs
    found = [*_end_lab_processes(run_id, record), *_unmount(run_id)]
    layout = find_layout()
    for name in layout.names(f"mdr{run_id}"):
        cgroup = Cgroup(name, layout)
        cgroup.kill()
        cgroup.remove()
        found.append(f"cgroup {name}")
    for folder in sorted(MEMORY.glob(f"mdr{run_id}*")):
        shutil.rmtree(folder, ignore_errors=True)
        found.append(f"memory {folder.name}")
    if not has_program("ip"):
        return found
    found += [f"network {name}" for name in remove_network(run_id)]
    if left := [name for name in (*lab_links(), *lab_namespaces()) if name.startswith(f"mdr{run_id}")]:
        raise LabError(f"lab {run_id}: could not remove {', '.join(left)}; run `minder lab clean` as root")
    return found


def _end_lab_processes(run_id: str, record: LabRecord | None) -> list[str]:
    found = [f"process {pid}" for pid in marked_processes(LAB_VARIABLE, run_id)]
    for pid, ticks in record.processes if record else []:
        if start_ticks(pid) == ticks:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
    if not end_processes(lambda: marked_processes(LAB_VARIABLE, run_id)):
        raise LabError(f"lab {run_id}: processes {marked_processes(LAB_VARIABLE, run_id)} did not die of SIGKILL")
    return found


def _unmount(run_id: str) -> list[str]:
    """What a fault has mounted on a machine's folder."""
    rows = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mounted = [row[1] for row in rows if row[0] == f"mdr{run_id}"]
    for path in mounted:
        subprocess.run(["umount", "--lazy", path], check=False, capture_output=True)
    return [f"mount {path}" for path in mounted]


def _find_settled(state_dir: Path) -> dict[str, list[Owner]]:
    """Labs with their owners. One without any owner may be in the making just now: it gets a moment to write its owner down."""
    labs = _find_labs(state_dir)
    if all(labs.values()):
        return labs
    time.sleep(0.3)
    again = _find_labs(state_dir)
    return {run_id: owners for run_id, owners in again.items() if owners or run_id in labs}


def _find_labs(state_dir: Path) -> dict[str, list[Owner]]:
    owners: dict[str, list[Owner]] = {}

    def note(run_id: str, owner: str | None) -> None:
        known = owners.setdefault(run_id, [])
        if owner and (parsed := Owner.parse(owner)):
            known.append(parsed)

    for path in (state_dir / "labs").glob("*.json"):
        if RUN_ID.match(path.stem):
            note(path.stem, None)
    for record in read_records(state_dir):
        note(record.run_id, record.owner)
    for path in MEMORY.glob("mdr????*"):
        if match := LAB_NAME.match(path.name):
            note(match[1], None)
    names = {**lab_links(), **dict.fromkeys(lab_namespaces(), "")} if has_program("ip") else {}
    for name, alias in {**dict.fromkeys(find_layout().names("mdr"), ""), **names}.items():
        if match := LAB_NAME.match(name):
            note(match[1], alias)
    for pid in all_pids():
        if (run_id := read_mark(pid, LAB_VARIABLE)) and RUN_ID.match(run_id):
            note(run_id, read_mark(pid, OWNER_VARIABLE))
    return owners
