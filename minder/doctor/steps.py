"""Are the steps of the jobs that run now read? Their controllers say so in status.json."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minder.act.controller.reporting.status import read_status, status_age_s
from minder.doctor.finding import Finding

__all__ = ["look_at_local_steps", "look_at_logs", "look_at_steps"]

_FRESH_S = 15.0
_SHOWN = 5
_MEND = "call minder.heartbeat(step=...) in the training loop, or give --step-pattern (docs/logs.md)"


def look_at_steps(state_dir: Path, job: str | None = None) -> list[Finding]:
    """Of the jobs whose controllers and watches keep their status there, or of one; nothing where none runs now."""
    paths = [state_dir / "status.json", state_dir / "watch/status.json", *sorted(state_dir.glob("watch/*/status.json"))]
    read = [status for path in paths if (status := read_status(path)) is not None]
    return [finding for status in read if job is None or status.get("job") in (job, None) for finding in _look(status)]


def _look(status: Mapping[str, Any]) -> list[Finding]:
    if status_age_s(status, time.time()) > _FRESH_S or status.get("phase") in ("finished", "failed"):
        return []
    name, trouble, step = status.get("job"), status.get("no_steps"), status.get("step")
    if trouble:
        return [Finding(f"steps of {name}", "missing", str(trouble), _MEND)]
    if isinstance(step, (int, float)):
        return [Finding(f"steps of {name}", "ok", f"step {step:.0f}")]
    return [Finding(f"steps of {name}", "note", "no step yet")]


def look_at_local_steps(folder: Path) -> list[Finding]:
    """Of the jobs that were run or watched here without a configuration. folder: the default state folder."""
    watched = [finding for path in sorted(folder.glob("watch/*/status.json")) for finding in _look(read_status(path) or {})]
    return [*(finding for state_dir in sorted((folder / "jobs").glob("*")) for finding in look_at_steps(state_dir)), *watched]


def look_at_logs(logs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Finding]:
    """The logs that agents follow for steps, by machine, as their health reports them."""
    followed = [(machine, log) for machine, found in logs.items() for log in found]
    if not followed:
        return []
    bad = [f"{machine}: {log.get('path') or ''} {log['problem']}".replace(":  ", ": ") for machine, log in followed if log.get("problem")]
    if bad:
        seen = "; ".join(bad[:_SHOWN]) + ("; ..." if len(bad) > _SHOWN else "")
        return [Finding("logs", "missing", seen, "let the agent's user read the file, mend --log, or give the script a heartbeat")]
    lines = ", ".join(f"{machine}: {log.get('path')} ({_read_so_far(log)})" for machine, log in followed[:_SHOWN])
    return [Finding("logs", "ok", lines)]


def _read_so_far(log: Mapping[str, Any]) -> str:
    step, lines, unnumbered = log.get("step"), log.get("lines", 0), log.get("unnumbered", 0)
    if step is not None:
        return f"step {step}"
    return f"{lines} lines, no step" + (f", {unnumbered} of them have a loss without a step" if unnumbered else "")
