"""One recording, replayed from its margins: posterior, names, verdicts, by the same code that runs live.

Legend: B bins, R rows, M machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from minder.diagnose.detectors.learned.decide import Calibration, Decision, Heard
from minder.diagnose.detectors.learned.posterior import Accumulation, Posterior, spread_margins
from minder.ingest.sources.events import Truth
from minder.model.evidence import Verdict
from minder.offline.evaluation.scoring import LIMIT_S, Judged, accusations, judge_recording
from minder.offline.training.learned.recording import Recording
from minder.offline.worlds.trace import Said, judge_said

__all__ = ["WAYS", "Outcome", "Path", "follow", "snapshots", "try_recording"]

WAYS = ("default", "learned", "pool")
_REPEATED_S = 15.0
_SNAPPED_S = 240.0
_LISTEN_S = 30.0  # a judge is asked at least so often, whether anything was said or not


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one recording one way. delay_s: a miss, or a wrong name, counts as `LIMIT_S`; NaN where there was no fault.
    false_count: accusations while nothing was wrong; healthy_s: seconds in which nothing was.
    first_p: what the first accusation was said to be worth at that moment, NaN without any."""

    judged: Judged
    delay_s: float
    false_count: int
    healthy_s: float
    first_p: float
    first_right: bool


@dataclass(frozen=True, slots=True)
class Path:
    """After every bin, of every machine: posterior and level (`Posterior`)."""

    p_BM: np.ndarray
    level_BM: np.ndarray


def follow(recording: Recording, margin_R: np.ndarray, accumulation: Accumulation) -> Path:
    posterior = Posterior(accumulation)
    posterior.follow(recording.machines)
    p_BM, level_BM = (np.zeros((len(recording.time_B), len(recording.machines)), dtype=np.float32) for _ in range(2))
    for b, dt_s in enumerate(recording.dt_B.tolist()):
        rows = slice(int(recording.first_B[b]), int(recording.first_B[b + 1]))
        p_BM[b] = posterior.update(dt_s, spread_margins(len(recording.machines), recording.machine_R[rows], margin_R[rows]))
        level_BM[b] = posterior.level_M
    return Path(p_BM, level_BM)


def snapshots(recording: Recording, path: Path, speak_p: float) -> np.ndarray:
    """(N, 6): level; whether the default detector accuses, would evict, whether the learned part accuses; whether rightly; weight.

    Of accusations while they last, every 15 s for four minutes; all snapshots of one accusation weigh 1 together.
    """
    episodes: dict[tuple[bool, tuple[str, ...]], list[tuple[float, bool]]] = {}
    for default, sure, machines, time_s in _accusations(recording, path, speak_p):
        taken = episodes.setdefault((default, machines), [])
        if not taken or (time_s - taken[-1][0] >= _REPEATED_S and time_s - taken[0][0] <= _SNAPPED_S):
            taken.append((time_s, sure))
    begun_s, found = np.inf if recording.onset_s is None else recording.onset_s, list[list[float]]()
    for (default, machines), taken in episodes.items():
        for time_s, sure in taken:
            level, p = _evidence_of(recording, path, machines, time_s)
            right = set(machines) <= set(recording.culprits) and time_s >= begun_s
            found.append([level, default, sure, p > speak_p, right, 1.0 / len(taken)])
    return np.array(found, dtype=np.float64).reshape(-1, 6)


def _accusations(recording: Recording, path: Path, speak_p: float) -> list[tuple[bool, bool, tuple[str, ...], float]]:
    """(by the default detector, for an eviction, of which machines, when)."""
    said = [(True, item.tier == "evict", item.machines, item.time_s) for item in recording.said if item.tier != "watch"]
    bins, places = np.nonzero(path.p_BM > speak_p)
    times = recording.time_B[bins].tolist()
    return [*said, *((False, False, (recording.machines[m],), time_s) for m, time_s in zip(places.tolist(), times, strict=True))]


def _evidence_of(recording: Recording, path: Path, machines: Sequence[str], time_s: float) -> tuple[float, float]:
    """(level, posterior) at the newest bin that had ended, of the one of these machines whose level is the highest."""
    b = int(np.searchsorted(recording.time_B, time_s + 1e-6, side="right")) - 1
    if b < 0:
        return 0.0, 0.0
    return max((float(path.level_BM[b, m]), float(path.p_BM[b, m])) for m in (recording.machines.index(name) for name in machines))


def try_recording(
    recording: Recording, path: Path, decision: Decision, calibration: Calibration, ways: Sequence[str] = WAYS
) -> Mapping[str, Outcome]:
    """The outcome of each way to decide."""
    spoken = _spoken(recording, path, decision, calibration) if set(ways) & {"learned", "pool"} else []
    said: dict[str, list[Said]] = {"default": list(recording.said), "learned": spoken}
    if "pool" in ways:
        said["pool"] = sorted([*_standing(recording, path, decision, calibration), *spoken], key=lambda item: item.time_s)
    return {way: outcome_of(recording, _verdicts(recording, said[way])) for way in ways}


def _spoken(recording: Recording, path: Path, decision: Decision, calibration: Calibration) -> list[Said]:
    """What the learned part says by itself."""
    heard, found = Heard(decision.least, decision.speak_s), []
    bins, places = np.nonzero(path.p_BM > decision.speak_p)
    for b, m in zip(bins.tolist(), places.tolist(), strict=True):
        share = calibration.share(float(path.level_BM[b, m]), learned=True, default=False)
        time_s, machine = float(recording.time_B[b]), recording.machines[m]
        stood_s = heard.stood_s(time_s, machine, share)
        if stood_s is not None:
            found.append(Said(time_s, (machine,), "page", "unknown", share, time_s - stood_s))
    return found


def _standing(recording: Recording, path: Path, decision: Decision, calibration: Calibration) -> list[Said]:
    """What the default detector says and is worth enough."""
    heard, found = Heard(decision.least), []
    for item in recording.said:
        if item.tier != "watch":
            level, p = _evidence_of(recording, path, item.machines, item.time_s)
            share = calibration.share(level, p > decision.speak_p, default=True, sure=item.tier == "evict")
            if heard.stood_s(item.time_s, item.machines[0], share) is not None:
                found.append(replace(item, confidence=share))
    return found


def _verdicts(recording: Recording, said: Sequence[Said]) -> list[Verdict]:
    said = _thinned(said)
    if not said:
        return []
    listen = np.arange(recording.time_B[0], recording.time_B[-1] + _LISTEN_S, _LISTEN_S) if len(recording.time_B) else np.zeros(0)
    return judge_said(np.unique(np.concatenate([listen, [item.time_s for item in said]])).tolist(), said)


def _thinned(said: Sequence[Said]) -> list[Said]:
    """Without what repeats itself within seconds: a judge opens an episode at the first, and keeps it open by one in a while."""
    kept, last_s = [], dict[tuple[tuple[str, ...], str], float]()
    for item in said:
        key = (item.machines, item.tier)
        if item.tier != "watch" and item.time_s - last_s.get(key, -np.inf) >= _REPEATED_S:
            last_s[key] = item.time_s
            kept.append(item)
    return kept


def outcome_of(recording: Recording, verdicts: Sequence[Verdict]) -> Outcome:
    """A pair of culprits, or a group, is found if one of its machines is named and no other machine."""
    right, onset_s = set(recording.culprits), recording.onset_s
    truth = Truth(recording.name, recording.fault, next(iter(recording.culprits), None), onset_s, recording.culprits)
    judged, accused = judge_recording(truth, verdicts), accusations(verdicts)
    delay_s = np.nan
    if recording.fault is not None:
        delay_s = float(judged.delay_s) if judged.outcome == "found" and judged.delay_s is not None else LIMIT_S
    begun_s = np.inf if onset_s is None else onset_s
    start_s = float(recording.time_B[0]) if len(recording.time_B) else 0.0
    healthy_s = recording.duration_s if onset_s is None else max(onset_s - start_s, 0.0)
    first_p, first_right = np.nan, False
    if accused:
        first_p = float(accused[0].confidence)
        first_right = set(accused[0].machines) <= right and accused[0].time_s >= begun_s
    quiet_false = sum(item.time_s < begun_s for item in accused)
    return Outcome(judged, delay_s, quiet_false, healthy_s, first_p, first_right)
