"""`status.json`: what the controller sees right now, for a terminal that shows it live. Written whole and renamed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from minder.act.controller.state import JobState
from minder.model.evidence import Scores
from minder.model.observation import MachineView
from minder.model.private import replace_private
from minder.record.incidents.proofs import Proof
from minder.record.json_text import read_json
from minder.wire.codec import to_json

__all__ = ["read_status", "status_age_s", "write_status"]


def write_status(path: Path, now_s: float, state: JobState, views: Mapping[str, MachineView], extra: Mapping[str, Any]) -> None:
    """`extra` is put beside the job's own fields: message, step, mode, loss, work (null where steps carry none), incident, standbys,
    dry_run (it acts on nothing). mode: what the job is doing (`JobMode.to_json`), null where that is unknown or the job is over.
    size: of a job that may go on with fewer machines: machines, full, least, says (words, "" at full size); else null.
    pool: standbys wanted (with low and high), ready, untested (they wait, and no probe of them has been judged) and short, the rate that
    this rests on, the tail, and what is asked and done where some are missing (says); null of a job that is only watched, and
    before the first count.
    missing: machine to what keeps it from being a standby, where it could be one. proven: machine outside the job to what
    its probes prove."""
    in_job = set(state.rank_machine.values())
    standbys = set(extra.get("standbys", ()))
    scores: Scores | None = extra.get("scores")
    missing: Mapping[str, str] = extra.get("missing", {})
    proven: Mapping[str, Proof] = extra.get("proven", {})
    rows = [
        {
            **_machine_row(view, _role(machine, in_job, standbys, state), scores),
            "missing": missing.get(machine),
            "proof": None if (proof := proven.get(machine)) is None else to_json(proof),
        }
        for machine, view in views.items()
    ]
    body = {
        "job": state.name,
        "now_s": now_s,
        "generation": state.generation,
        "phase": state.phase,
        "machines": rows,
        **{key: value for key, value in extra.items() if key not in ("scores", "standbys", "missing", "proven")},
    }
    replace_private(path, json.dumps(_finite(body)))


def read_status(path: Path) -> dict[str, Any] | None:
    """The last status, or None before the first one."""
    try:
        found = read_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def status_age_s(status: Mapping[str, Any], now_s: float) -> float:
    """How far from now a status was written; infinity where it does not say. One that is dated ahead is no fresher than one that is as
    far behind: a clock was set, and whether it is still written is not known.

    >>> status_age_s({"now_s": 3700.0}, 100.0)
    3600.0
    """
    written_s = status.get("now_s")
    return abs(now_s - written_s) if isinstance(written_s, (int, float)) else math.inf


def _role(machine: str, in_job: Iterable[str], standbys: Iterable[str], state: JobState) -> str:
    if machine in state.barred:
        return "evicted"
    if machine in in_job:
        return "training"
    return "standby" if machine in standbys else "spare"


def _machine_row(view: MachineView, role: str, scores: Scores | None) -> dict[str, Any]:
    steps = [worker.step for worker in view.workers if worker.step is not None]
    score = None
    if scores is not None and view.machine in scores.machines:
        score = float(scores.score_M[scores.machines.index(view.machine)]) / scores.threshold
    return {
        "name": view.machine,
        "role": role,
        "agent_age_s": view.agent_age_s,
        "launcher_age_s": view.launcher_age_s,
        "workers": [worker.state for worker in view.workers],
        "step": max(steps) if steps else None,
        "score": score,
    }


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
