"""The learned detector alone, and pooled with the default one. Both are detectors like any other (contract.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from minder.diagnose.detectors.contract import Detector
from minder.diagnose.detectors.learned.decide import Speaking, Veto
from minder.diagnose.detectors.learned.features import Bin, FeatureStream
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
    """Score: seconds for which a machine's posterior has stood above `speak_p`; the threshold is `speak_s`."""

    def __init__(self, model: LearnedModel, stages: Mapping[str, object] | None = None) -> None:
        self.model = model
        self.posterior = Posterior(model.accumulation)
        self._stream = FeatureStream(stages)
        self._speaking = Speaking(model.decision)
        self._stood: Mapping[str, float] = {}
        self._bin: Bin | None = None

    def score(self, window: Window) -> list[Scores]:
        metrics, values_TKM = with_devices(window)
        found = []
        for t, time_s in enumerate(window.times_T.tolist()):
            ended = self._stream.add(time_s, window.machines, metrics, values_TKM[t], window.present_TM[t])
            if ended is not None:
                self._take(ended)
            found.append(self._scores(time_s, window.machines))
        return found

    def learn(self, window: Window, anomalous: frozenset[str]) -> None:
        self._stream.withhold(anomalous)

    def times_at_rest(self, machine: str) -> float:
        """The machine's posterior, over what it would be without any data."""
        if machine not in self.posterior.machines:
            return 1.0
        p = float(self.posterior.p_M[self.posterior.machines.index(machine)])
        return p / self.model.accumulation.at_rest(len(self.posterior.machines))

    def state(self) -> dict[str, Any]:
        return {
            "detector": "learned", "version": 1, "stream": self._stream.state(), "posterior": self.posterior.state(),
            "speaking": self._speaking.state(), "stood": dict(self._stood),
        }  # fmt: skip

    def load(self, state: Mapping[str, Any]) -> None:
        self._stream.load(state["stream"])
        self.posterior.load(state["posterior"])
        self._speaking.load(state["speaking"])
        self._stood = {name: float(seconds) for name, seconds in state["stood"].items()}
        self._bin = None

    def _take(self, ended: Bin) -> None:
        self._bin = ended
        self.posterior.follow(ended.machines)
        if len(ended.machines) < _FEWEST:
            return
        margin_C = self.model.margin.of(ended.features_CF)
        p_M = self.posterior.update(ended.dt_s, spread_margins(len(ended.machines), ended.candidates_C, margin_C))
        self._stood = self._speaking.update(ended.dt_s, ended.machines, p_M)

    def _scores(self, time_s: float, machines: tuple[str, ...]) -> Scores:
        score_M, threshold = np.zeros(len(machines)), self.model.decision.speak_s
        for name, seconds in self._stood.items():
            if name in machines:
                score_M[machines.index(name)] = seconds
        odd = [machines[m] for m in np.flatnonzero(score_M >= 0.5 * threshold).tolist()]
        evidence = {name: self._evidence(name, time_s) for name in odd}
        return Scores(time_s, machines, score_M, threshold, evidence, {name: time_s - self._stood[name] for name in odd})

    def _evidence(self, machine: str, time_s: float) -> tuple[Evidence, ...]:
        """One line for each kind without which the machine would stand out less, the one that says most first."""
        ended, since_s = self._bin, time_s - self._stood[machine]
        known = ended is not None and machine in ended.machines
        place = np.flatnonzero(ended.candidates_C == ended.machines.index(machine)) if ended is not None and known else np.zeros(0, int)
        p = float(self.posterior.p_M[self.posterior.machines.index(machine)]) if machine in self.posterior.machines else 0.0
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
        whole = Evidence("telemetry", machine, f"posterior {p:.3f} (prior: {prior})", since_s=since_s)
        return (*lines[:_MOST_LINES], whole)


class PoolDetector:
    """The default detector, heard where the learned posterior does not contradict it; and the learned one, heard by itself."""

    def __init__(self, default: Detector, learned: LearnedDetector) -> None:
        self._default, self._learned = default, learned
        self._veto = Veto(learned.model.decision)

    def score(self, window: Window) -> list[Scores]:
        pairs = zip(self._default.score(window), self._learned.score(window), strict=True)
        return [self._pooled(rules, learned) for rules, learned in pairs]

    def learn(self, window: Window, anomalous: frozenset[str]) -> None:
        self._default.learn(window, anomalous)
        self._learned.learn(window, anomalous)

    def state(self) -> dict[str, Any]:
        parts = {"default": self._default.state(), "learned": self._learned.state(), "veto": self._veto.state()}
        return {"detector": "pool", "version": 1, **parts}

    def load(self, state: Mapping[str, Any]) -> None:
        self._default.load(state["default"])
        self._learned.load(state["learned"])
        self._veto.load(state["veto"])

    def _pooled(self, rules: Scores, learned: Scores) -> Scores:
        """Scores in the default's unit. A machine that both name keeps the default's evidence first."""
        score_M, held = rules.score_M.copy(), _HELD * rules.threshold
        for m in np.flatnonzero(score_M >= held).tolist():
            machine = rules.machines[m]
            if not self._veto.allows(rules.time_s, machine, self._learned.times_at_rest(machine)):
                score_M[m] = 0.99 * held
        own_M = learned.score_M * rules.threshold / learned.threshold
        evidence = {name: (*rules.evidence.get(name, ()), *learned.evidence.get(name, ())) for name in {*rules.evidence, *learned.evidence}}
        return replace(rules, score_M=np.maximum(score_M, own_M), evidence=evidence, since_s={**learned.since_s, **rules.since_s})
