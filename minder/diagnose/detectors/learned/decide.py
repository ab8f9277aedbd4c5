"""From posteriors to names: when the learned part speaks by itself, and when it lets the default detector speak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Decision", "Speaking", "Veto"]


@dataclass(frozen=True, slots=True)
class Decision:
    """speak_p, speak_s: a machine whose posterior stands above it for so long is named.

    veto_times: a machine that the default detector names, and whose posterior is not above so much of what it would be without any data
    (`Accumulation.at_rest`), waits, wait_s at most; then that accusation is dropped.
    """

    speak_p: float = 0.8
    speak_s: float = 60.0
    veto_times: float = 0.1
    wait_s: float = 120.0


class Speaking:
    """How long each machine's posterior has stood above `speak_p`. A second machine is named only if it stands higher than the first."""

    def __init__(self, decision: Decision) -> None:
        self._decision = decision
        self._stood_s: dict[str, float] = {}
        self._peak = 0.0  # the highest posterior of a machine that was named
        self._named: set[str] = set()

    def update(self, dt_s: float, machines: tuple[str, ...], p_M: np.ndarray) -> Mapping[str, float]:
        """Machine to seconds, of those above; at `speak_s` it is named."""
        rules, stood = self._decision, dict[str, float]()
        for m in np.flatnonzero(p_M > rules.speak_p).tolist():
            name = machines[m]
            if self._named and name not in self._named and p_M[m] <= self._peak:
                continue
            stood[name] = self._stood_s.get(name, 0.0) + dt_s
            if stood[name] >= rules.speak_s:
                self._named.add(name)
                self._peak = max(self._peak, float(p_M[m]))
        self._stood_s = stood
        return stood

    def state(self) -> dict[str, Any]:
        return {"stood_s": dict(self._stood_s), "peak": self._peak, "named": sorted(self._named)}

    def load(self, state: Mapping[str, Any]) -> None:
        self._stood_s, self._peak, self._named = dict(state["stood_s"]), float(state["peak"]), set(state["named"])


class Veto:
    """Which of the default detector's accusations stand. `since`: machine to when it was first accused in vain, and last."""

    def __init__(self, decision: Decision) -> None:
        self._decision = decision
        self._since: dict[str, tuple[float, float]] = {}
        self._stands: dict[str, float] = {}  # machine to when it was last accused with success

    def allows(self, now_s: float, machine: str, times: float) -> bool:
        """Whether an accusation of this row stands. Once it stands, it stands until it ends. times: posterior over that without data."""
        rules = self._decision
        if now_s - self._stands.get(machine, -np.inf) <= rules.wait_s:
            self._stands[machine] = now_s
            return True
        first_s, last_s = self._since.get(machine, (now_s, now_s))
        if now_s - last_s > rules.wait_s:
            first_s = now_s  # another accusation
        self._since[machine] = (first_s, now_s)
        if times > rules.veto_times and now_s - first_s <= rules.wait_s:
            self._stands[machine] = now_s
            del self._since[machine]
            return True
        return False

    def state(self) -> dict[str, Any]:
        return {"since": {name: list(times) for name, times in self._since.items()}, "stands": dict(self._stands)}

    def load(self, state: Mapping[str, Any]) -> None:
        self._since = {name: (float(first), float(last)) for name, (first, last) in state["since"].items()}
        self._stands = {name: float(at) for name, at in state["stands"].items()}
