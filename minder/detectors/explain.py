"""Why a machine is odd: for those above half the threshold, the metrics that say so, what was seen and what was expected."""

from __future__ import annotations

import numpy as np

from minder.detectors.memory import Memory
from minder.detectors.phases import Phase
from minder.detectors.presence import Seen
from minder.detectors.traits import HIGH, LOW, TraitTable
from minder.types import Cause, Evidence, Scores

__all__ = ["explain"]

_MOST = 6


def explain(
    memory: Memory,
    traits: TraitTable,
    verdict: tuple[float, float, bool],
    scaled_KM: np.ndarray,
    signed_KM: np.ndarray,
    context: tuple[Seen, Phase],
) -> Scores:
    """Scores of one row. verdict: (time, threshold, quiet); signed_KM: counted evidence -1..1 with its direction."""
    time_s, threshold, quiet = verdict
    score_M = memory["score_M"].copy()
    evidence: dict[str, tuple[Evidence, ...]] = {}
    since: dict[str, float] = {}
    cause: dict[str, Cause] = {}
    for m in np.flatnonzero(score_M >= 0.5 * threshold).tolist():
        name = memory.machines[m]
        started_s = float(memory["since_M"][m])
        since[name] = started_s if started_s == started_s else time_s
        silent = context[0].silence_M[m] > max(2.5 * context[0].interval_s, 8.0)
        evidence[name] = (
            _silence(name, since[name], context[0].silence_M[m]) if silent else _metrics(memory, traits, m, scaled_KM, signed_KM)
        )
        cause[name] = "absence" if silent else _cause(memory, traits, m, scaled_KM, signed_KM)
    return Scores(time_s, memory.machines, score_M, threshold, evidence, since, cause, quiet)


def _silence(machine: str, since_s: float, silence_s: float) -> tuple[Evidence, ...]:
    message = f"silent for {silence_s:.0f} s while the training of its peers has changed"
    return (Evidence("telemetry", machine, message, None, None, None, None, since_s),)


def _metrics(memory: Memory, traits: TraitTable, m: int, scaled_KM: np.ndarray, signed_KM: np.ndarray) -> tuple[Evidence, ...]:
    weight_K = np.abs(signed_KM[:, m]) * traits.weight_K1[:, 0]
    found = []
    since_s = float(memory["since_M"][m])
    for k in np.argsort(-weight_K, kind="stable")[:_MOST].tolist():
        if weight_K[k] <= 0.05:
            break
        expected = scaled_KM[k, m] - memory["all_quick_smooth_KM"][k, m]
        name = traits.metrics[k]
        message = "smallest device" if name.endswith(LOW) else "largest device" if name.endswith(HIGH) else ""
        metric = name.removesuffix(LOW).removesuffix(HIGH)
        observed = float(memory["last_KM"][k, m])
        found.append(Evidence("telemetry", memory.machines[m], message, metric, None, observed, traits.unscale(k, expected), since_s))
    return tuple(found)


def _cause(memory: Memory, traits: TraitTable, m: int, scaled_KM: np.ndarray, signed_KM: np.ndarray) -> Cause:
    """A stall if the machine's own activity has all but ended, else a slowdown; unknown if its activity tells nothing."""
    own_KM = memory["all_quick_smooth_KM"][:, m] + memory["shift_K"]
    told_K = traits.activity_K & (np.abs(signed_KM[:, m]) > 0.0) & np.isfinite(own_KM)
    if not told_K.any():
        return "slowdown" if (np.abs(memory["shift_K"][traits.activity_K]) > 0.1).any() else "unknown"
    return "stall" if float(own_KM[told_K].min()) < -0.9 else "slowdown"
