"""Whose process ended first when a watched job went away."""

from __future__ import annotations

from dataclasses import dataclass

from minder.model.clock import format_time
from minder.model.evidence import Signal
from minder.model.observation import Observation

__all__ = ["Departures"]

_TOGETHER_S = 1.0  # ends within this of each other are one moment: machines' clocks, and a launcher that ends all of its ranks


@dataclass(frozen=True, slots=True)
class _Exit:
    time_s: float
    who: str
    how: str


class Departures:
    """`note` every tick; `words` says who went first of the generation that went last."""

    def __init__(self) -> None:
        self._generation = -1
        self._exits: dict[tuple[str, int], _Exit] = {}

    def note(self, observation: Observation) -> None:
        job = observation.job
        if job is not None and job.generation != self._generation:
            self._generation, self._exits = job.generation, {}
        for signal in observation.signals:
            if signal.kind == "exit" and signal.generation == self._generation and signal.pid is not None:
                key = signal.machine or "", signal.pid
                if key not in self._exits or signal.time_s < self._exits[key].time_s:
                    self._exits[key] = _Exit(signal.time_s, _who(signal), _how(signal))

    def words(self) -> str:
        """A clause; "" is never returned: an exit that was not seen is stated too."""
        exits = sorted(self._exits.values(), key=lambda item: item.time_s)
        if not exits:
            return "the first exit was not seen"
        first = exits[0]
        at = format_time(first.time_s)
        together = [item for item in exits if item.time_s - first.time_s < _TOGETHER_S]
        if len(together) == len(exits) > 1:
            bad = next((item for item in exits if "with 0" not in item.how), None)
            return f"all {len(exits)} ranks ended within {_TOGETHER_S:.0f} s, at {at}" + (
                f": {bad.who} {bad.how}" if bad else ", each with 0"
            )
        if len(together) > 1:
            others = len(exits) - len(together)
            return f"{len(together)} ranks went first, {first.who} {first.how} among them, at {at}; {others} later"
        after = f", {exits[1].time_s - first.time_s:.1f} s before {exits[1].who}" if len(exits) > 1 else ""
        return f"{first.who} went first, {first.how}, at {at}{after}"


def _who(signal: Signal) -> str:
    name = f"process {signal.pid}" if signal.rank is None else f"rank {signal.rank}"
    return f"{name} on {signal.machine}" if signal.machine else name


def _how(signal: Signal) -> str:
    if signal.data.get("signal"):
        return f"by signal {signal.data['signal']}"
    code = signal.data.get("code")
    return "with unknown exit status" if code is None else f"with {code}"
