"""One recording, replayed from its margins: posterior, names, verdicts, by the same code that runs live.

Legend: B bins, R rows, M machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from minder.diagnose.detectors.learned.decide import Decision, Speaking, Veto
from minder.diagnose.detectors.learned.posterior import Accumulation, Posterior, spread_margins
from minder.ingest.sources.events import Truth
from minder.model.evidence import Verdict
from minder.offline.evaluation.scoring import LIMIT_S, Judged, accusations, judge_recording
from minder.offline.training.learned.recording import Recording
from minder.offline.worlds.trace import Said, judge_said

__all__ = ["WAYS", "Outcome", "follow", "try_recording"]

WAYS = ("default", "learned", "pool")
_REPEATED_S = 15.0
_LISTEN_S = 30.0  # a judge is asked at least so often, whether anything was said or not


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one recording one way. delay_s: a miss, or a wrong name, counts as `LIMIT_S`; NaN where there was no fault.
    false_count: accusations while nothing was wrong; healthy_s: seconds in which nothing was.
    first_p: what the posterior of the first accused was at that moment, NaN without any."""

    judged: Judged
    delay_s: float
    false_count: int
    healthy_s: float
    first_p: float
    first_right: bool


def follow(recording: Recording, margin_R: np.ndarray, accumulation: Accumulation) -> np.ndarray:
    """p_BM: the posterior after every bin."""
    posterior = Posterior(accumulation)
    posterior.follow(recording.machines)
    p_BM = np.zeros((len(recording.time_B), len(recording.machines)))
    for b, dt_s in enumerate(recording.dt_B.tolist()):
        rows = slice(int(recording.first_B[b]), int(recording.first_B[b + 1]))
        p_BM[b] = posterior.update(dt_s, spread_margins(len(recording.machines), recording.machine_R[rows], margin_R[rows]))
    return p_BM


def try_recording(
    recording: Recording, p_BM: np.ndarray, decision: Decision, rest_p: float, ways: Sequence[str] = WAYS
) -> Mapping[str, Outcome]:
    """The outcome of each way to decide. rest_p: a machine's posterior without any data."""
    spoken = _spoken(recording, p_BM, decision) if set(ways) & {"learned", "pool"} else []
    said = {"default": recording.said, "learned": spoken}
    if "pool" in ways:
        said["pool"] = sorted([*_standing(recording, p_BM / rest_p, decision), *spoken], key=lambda item: item.time_s)
    return {way: outcome_of(recording, _verdicts(recording, said[way]), p_BM) for way in ways}


def _spoken(recording: Recording, p_BM: np.ndarray, decision: Decision) -> list[Said]:
    """What the learned part says by itself."""
    speaking, found = Speaking(decision), []
    for b in np.flatnonzero(p_BM.max(axis=1, initial=0.0) > decision.speak_p).tolist() if len(p_BM) else []:
        pass_s = float(recording.dt_B[b])
        if b and not (p_BM[b - 1] > decision.speak_p).any():
            speaking.update(pass_s, recording.machines, p_BM[b - 1])  # nothing stood: what stood before has ended
        stood = speaking.update(pass_s, recording.machines, p_BM[b])
        for name, seconds in stood.items():
            if seconds >= decision.speak_s:
                time_s, p = float(recording.time_B[b]), float(p_BM[b, recording.machines.index(name)])
                found.append(Said(time_s, (name,), "page", "unknown", min(p, 0.99), time_s - seconds))
    return found


def _standing(recording: Recording, times_BM: np.ndarray, decision: Decision) -> list[Said]:
    """What the default detector says and the posterior does not contradict."""
    veto, found = Veto(decision), []
    place = {name: m for m, name in enumerate(recording.machines)}
    bin_N = np.searchsorted(recording.time_B, [item.time_s + 1e-6 for item in recording.said], side="right") - 1
    for item, b in zip(recording.said, bin_N.tolist(), strict=True):
        times = max(float(times_BM[b, place[name]]) for name in item.machines) if b >= 0 else 1.0
        if veto.allows(item.time_s, item.machines[0], times):
            found.append(item)
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


def outcome_of(recording: Recording, verdicts: Sequence[Verdict], p_BM: np.ndarray) -> Outcome:
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
        b = int(np.searchsorted(recording.time_B, accused[0].time_s + 1e-6, side="right")) - 1
        first_p = max(float(p_BM[b, recording.machines.index(name)]) for name in accused[0].machines) if b >= 0 else 0.0
        first_right = set(accused[0].machines) <= right and accused[0].time_s >= begun_s
    quiet_false = sum(item.time_s < begun_s for item in accused)
    return Outcome(judged, delay_s, quiet_false, healthy_s, first_p, first_right)
