"""The learned detector alone, and pooled with the default one. Both are detectors like any other (contract.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from minder.diagnose.detectors.contract import Detector
from minder.diagnose.detectors.corroboration import is_corroborated
from minder.diagnose.detectors.learned.decide import Heard
from minder.diagnose.detectors.learned.features import Bin, FeatureStream
from minder.diagnose.detectors.learned.kinds import series_of
from minder.diagnose.detectors.learned.model import LearnedModel
from minder.diagnose.detectors.learned.posterior import Posterior, spread_margins
from minder.diagnose.detectors.traits import with_devices
from minder.model.evidence import Evidence, Scores
from minder.model.telemetry import Window

__all__ = ["LearnedDetector", "PoolDetector"]

_FEWEST = 3  # machines; of two, no peers can say which one is odd
_MOST_LINES = 6
_HELD = 0.3  # share of the threshold from which on the telemetry rule keeps an accusation


class LearnedDetector:
    """Score: 1 for a machine whose posterior is above `speak_p` and whose accusation has been worth `least` for `speak_s`; else 0."""

    def __init__(self, model: LearnedModel, stages: Mapping[str, object] | None = None) -> None:
        self.model = model
        self.posterior = Posterior(model.accumulation)
        self._stream = FeatureStream(stages)
        self._heard = Heard(model.decision.least, model.decision.speak_s)
        self._stood: dict[str, float] = {}
        self._bin: Bin | None = None
        self.not_judged = ""  # why the newest row accuses no machine whatever happened, as one line; empty where it is judged

    def score(self, window: Window) -> list[Scores]:
        metrics, values_TKM = with_devices(window)
        found = []
        for t, time_s in enumerate(window.times_T.tolist()):
            self.not_judged = _not_judged(window.machines, metrics, values_TKM[t])
            ended = self._stream.add(time_s, window.machines, metrics, values_TKM[t], window.present_TM[t])
            if ended is not None:
                self._take(ended)
            found.append(self._scores(time_s, window.machines))
        return found

    def learn(self, window: Window, anomalous: frozenset[str]) -> None:
        self._stream.withhold(anomalous)

    def share(self, machine: str, default: bool, sure: bool = False) -> float:
        """The share of accusations like one of this machine now that is right. default, sure: the default detector accuses it, too, and
        would have it evicted."""
        level, p = self.posterior.level(machine), self.posterior.of(machine)
        learned = p is not None and p > self.model.decision.speak_p
        return self.model.calibration.share(0.0 if level is None else level, learned, default, sure)

    def state(self) -> dict[str, Any]:
        return {
            "detector": "learned", "version": 2, "stream": self._stream.state(), "posterior": self.posterior.state(),
            "heard": self._heard.state(), "stood": dict(self._stood),
        }  # fmt: skip

    def load(self, state: Mapping[str, Any]) -> None:
        self._stream.load(state["stream"])
        self.posterior.load(state["posterior"])
        self._heard.load(state["heard"])
        self._stood = {name: float(seconds) for name, seconds in state["stood"].items()}
        self._bin = None

    def _take(self, ended: Bin) -> None:
        self._bin, self._stood = ended, {}
        self.posterior.follow(ended.machines)
        if len(ended.machines) < _FEWEST:
            return
        margin_C = self.model.margin.of(ended.features_CF)
        p_M = self.posterior.update(ended.dt_s, spread_margins(len(ended.machines), ended.candidates_C, margin_C))
        self._heard.forget(ended.time_s)
        for m in np.flatnonzero(p_M > self.model.decision.speak_p).tolist():
            machine = ended.machines[m]
            stood_s = self._heard.stood_s(ended.time_s, machine, self.share(machine, default=False))
            if stood_s is not None:
                self._stood[machine] = stood_s

    def _scores(self, time_s: float, machines: tuple[str, ...]) -> Scores:
        score_M = np.zeros(len(machines))
        for name in self._stood:
            if name in machines:
                score_M[machines.index(name)] = 1.0
        odd = [name for name in self._stood if name in machines]
        evidence = {name: self._evidence(name, time_s) for name in odd}
        return Scores(time_s, machines, score_M, 1.0, evidence, {name: time_s - self._stood[name] for name in odd})

    def _evidence(self, machine: str, time_s: float) -> tuple[Evidence, ...]:
        """One line for each kind without which the machine would stand out less, the one that says most first."""
        ended, since_s = self._bin, time_s - self._stood[machine]
        known = ended is not None and machine in ended.machines
        place = np.flatnonzero(ended.candidates_C == ended.machines.index(machine)) if ended is not None and known else np.zeros(0, int)
        p = self.posterior.of(machine) or 0.0
        lines = []
        if ended is not None and len(place):
            m = int(ended.candidates_C[place[0]])
            for kind, share in self.model.margin.shares(ended.features_CF[place[0]]).items():
                shown = self._stream.most_deviant(m, kind)
                if share > 0.0 and shown is not None:
                    metric, observed, expected = shown
                    message = f"{kind.replace('_', ' ')} unlike its peers': {share:+.1f} of the log likelihood ratio"
                    lines.append(Evidence("telemetry", machine, message, metric, None, observed, expected, since_s))
        prior = f"one fault of the job in {self.model.accumulation.between_s / 3600.0:.0f} h"
        worth = f"{100.0 * self.share(machine, default=False):.0f} % of such accusations are right"
        whole = Evidence("telemetry", machine, f"posterior {p:.3f} (prior: {prior}); {worth}", since_s=since_s)
        return (*lines[:_MOST_LINES], whole)


def _not_judged(machines: tuple[str, ...], metrics: tuple[str, ...], values_KM: np.ndarray) -> str:
    if len(machines) < _FEWEST:
        return f"not judged: {len(machines)} machines have no peers to be compared with, {_FEWEST} are needed"
    read = [series_of(name) is not None for name in metrics]
    if not any(read):
        return f"not judged: none of the {len(metrics)} metrics is one that the model reads"
    if np.isnan(values_KM[read]).all():
        return "not judged: no machine has a value of any metric that the model reads"
    return ""


class PoolDetector:
    """The default detector, heard where the learned evidence makes its accusation worth enough; and the learned one, by itself."""

    def __init__(self, default: Detector, learned: LearnedDetector) -> None:
        self._default, self._learned = default, learned
        self._heard = Heard(learned.model.decision.least)

    def score(self, window: Window) -> list[Scores]:
        pairs = zip(self._default.score(window), self._learned.score(window), strict=True)
        return [self._pooled(rules, learned) for rules, learned in pairs]

    def learn(self, window: Window, anomalous: frozenset[str]) -> None:
        self._default.learn(window, anomalous)
        self._learned.learn(window, anomalous)

    def state(self) -> dict[str, Any]:
        parts = {"default": self._default.state(), "learned": self._learned.state(), "heard": self._heard.state()}
        return {"detector": "pool", "version": 2, **parts}

    def load(self, state: Mapping[str, Any]) -> None:
        self._default.load(state["default"])
        self._learned.load(state["learned"])
        self._heard.load(state["heard"])

    def _pooled(self, rules: Scores, learned: Scores) -> Scores:
        """Scores in the default's unit. A machine that both name keeps the default's evidence first."""
        score_M, held = rules.score_M.copy(), _HELD * rules.threshold
        for m in np.flatnonzero(score_M >= held).tolist():
            machine = rules.machines[m]
            if self._heard.stood_s(rules.time_s, machine, self._learned.share(machine, True, is_corroborated(rules, m))) is None:
                score_M[m] = 0.99 * held
        own_M = learned.score_M * rules.threshold / learned.threshold
        for name in {*rules.not_judged, *rules.clocks_off}:  # the learned part reads what they export as it stands
            own_M[rules.machines.index(name)] = 0.0
        evidence = {name: (*rules.evidence.get(name, ()), *learned.evidence.get(name, ())) for name in {*rules.evidence, *learned.evidence}}
        return replace(rules, score_M=np.maximum(score_M, own_M), evidence=evidence, since_s={**learned.since_s, **rules.since_s})
