"""Parts of a run that did not come to their end: what they left running is ended, and what they kept is judged with the rest."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from chaos_lab.steps import Steps
from minder.model.errors import LabError
from minder.simulate.lab.clean import clean_labs

__all__ = ["clear", "earlier_parts", "losses_of"]


def earlier_parts(out: Path, run: str, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Folders of the run's parts that have no row of their end: they were killed or interrupted."""
    ended = {row["folder"] for row in rows if "folder" in row}
    named = re.compile(rf"run-{re.escape(run)}-(\d+|end)-\d+")
    return sorted(path for path in out.iterdir() if named.fullmatch(path.name) and path.name not in ended)


def clear(parts: Sequence[Path]) -> None:
    """End what is left of their labs, after what stands on their small disks was kept. Raises LabError where one still has its owner."""
    for part in parts:
        with suppress(OSError):
            shutil.copytree(part / "ledger", part / "ledger-kept", ignore=shutil.ignore_patterns("ballast"), dirs_exist_ok=True)
    running = set(clean_labs().running) if parts else set()
    for part in parts:
        if _lab(part) in running:
            raise LabError(f"{part} is being played by another process: wait for its end, or give another --name or --out")


def losses_of(parts: Sequence[Path]) -> dict[Path, int]:
    """The folders with the losses of those that took a step, and the last step of each."""
    taken = {part / "train": Steps(part / "train" / "losses.jsonl").look() for part in parts}
    return {folder: max(step.step for step in steps) for folder, steps in taken.items() if steps}


def _lab(part: Path) -> str | None:
    """The run id of its lab; None where it was killed before it had one."""
    try:
        job = tomllib.loads((part / "job.toml").read_text())
    except (OSError, ValueError):
        return None
    name = re.fullmatch(r"lab-([0-9a-f]{4})", str(job.get("name")))
    return name[1] if name else None
