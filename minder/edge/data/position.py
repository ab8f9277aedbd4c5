"""Where a run stands in its plan (pure): steps done, and the batches that they left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from minder.edge.data.plan import Plan
from minder.model.batch_ranges import BatchRangesError, batch_of_step, format_ranges, parse_ranges
from minder.model.errors import DataError

__all__ = ["Position", "Unit"]


@dataclass(frozen=True, slots=True)
class Unit:
    """What a rank takes at once: one part (from 0) of its share of a batch, in a step (from 1). number: counts the units from 0."""

    number: int
    step: int
    batch: int
    part: int


@dataclass(frozen=True, slots=True)
class Position:
    """After `step` steps. skipped: the batches that the steps before left out, and that those to come leave out."""

    step: int = 0
    skipped: tuple[range, ...] = ()

    def skipping(self, wanted: Iterable[range]) -> Position:
        """Here, with other batches to leave out from now on. What was trained on stays as it was: steps keep their batches.

        >>> Position(3).skipping([range(1, 2), range(5, 6)]).skipped
        (range(5, 6),)
        """
        reached = 0 if self.step == 0 else batch_of_step(self.step, self.skipped) + 1
        before = [range(one.start, min(one.stop, reached)) for one in self.skipped]
        after = [range(max(one.start, reached), one.stop) for one in wanted]
        return Position(self.step, parse_ranges(format_ranges([one for one in (*before, *after) if one])))

    def units(self, plan: Plan, parts: int, first: int) -> Iterator[Unit]:
        """From unit number `first` on, which counts the parts of all steps from 0; to the end of the plan, where it has one."""
        while True:
            unit = self.unit(first, parts)
            if plan.batches is not None and unit.batch >= plan.batches:
                return
            yield unit
            first += 1

    def unit(self, number: int, parts: int) -> Unit:
        """A unit by its number."""
        step, part = number // parts + 1, number % parts
        return Unit(number, step, batch_of_step(step, self.skipped), part)

    def state(self, plan: Plan) -> dict[str, Any]:
        """Plain values, the same on every rank."""
        return {"step": self.step, "skipped": format_ranges(self.skipped), "plan": plan.identity()}

    @classmethod
    def of_state(cls, state: Mapping[str, Any], plan: Plan, where: str = "the loader's state") -> Position:
        """Raises DataError for a state of another plan, or one that is none."""
        try:
            step, skipped, identity = int(state["step"]), parse_ranges(state["skipped"]), dict(state["plan"])
        except (KeyError, TypeError, ValueError, BatchRangesError) as error:
            raise DataError(
                f"{where} has no step, skipped batches and plan: load what state_dict() of a loader returned ({error})"
            ) from error
        plan.check_identity(identity, where)
        return cls(step, skipped)
