"""Probes' results as verdicts: each number against equal machines, and against the machine's own past. Pure.

No number is judged by a constant alone. Two machines are equal where the probe says the same facts of them (processor or GPU, driver,
library, version of the probe). With too few equal machines and too short a past, or where their numbers differ so much
that half the speed would not stand out, a number is not judged, and that is said.

A value deviates where it lies more than DEVIATIONS robust standard deviations (1.4826 x the median absolute deviation) and more than SHARE
of the median on the bad side, both. Against its own past a machine is compared as a share of it, and a change that its equals have made too
(a kernel, a hot room) is taken out first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from minder.diagnose.diagnostics import alignment
from minder.model.probes import Judged, Measurement, MeasurementVerdict, ProbeJudgement, ProbeResult

__all__ = ["DEVIATIONS", "LEAST_PAST", "LEAST_PEERS", "SHARE", "judge", "judge_machine", "judge_machines", "worst"]

LEAST_PEERS = 4  # equal machines, besides the one that is judged: a median that one more bad one does not move
LEAST_PAST = 3  # earlier results of the machine itself
DEVIATIONS = 4.0
SHARE = 0.10  # MegaScale's slow machines were about 10 % slow
_FLOOR = 0.02  # equal numbers to the last digit do not make 2 % a deviation
_NORMAL = 1.4826
_ORDER: tuple[Judged, ...] = ("fail", "slow", "not_judged", "pass", "not_applicable")

Key = tuple[str, str | None]
Results = Mapping[str, Sequence[ProbeResult]]


@dataclass(frozen=True, slots=True)
class _Reference:
    """What a value is compared with. expected: its median; limit: where it begins to deviate, on the side(s) that are bad."""

    against: str
    expected: float
    spread: float
    better: str

    @property
    def limit(self) -> float:
        return self.expected - self.spread if self.better == "higher" else self.expected + self.spread

    def deviates(self, value: float) -> bool:
        off = self.expected - value if self.better == "higher" else value - self.expected
        return (abs(off) if self.better == "same" else off) > self.spread


def judge(results: Mapping[str, ProbeResult], past: Results | None = None) -> dict[str, ProbeJudgement]:
    """Machine to verdict on one probe. results: machine to what it measured now. past: machine to earlier results of the same probe, oldest
    first; of a machine that is not among `results`, the newest counts as an equal machine's."""
    past = past or {}
    if any(found.probe == "alignment" for found in results.values()):  # hashes are compared, not numbers
        return alignment.judge_results(results, past)
    absent = {machine: found[-1] for machine, found in past.items() if machine not in results and found}
    everyone = {**absent, **results}
    return {machine: judge_machine(machine, found, everyone, past) for machine, found in results.items()}


def judge_machines(
    results: Mapping[str, Sequence[ProbeResult]], past: Callable[[str], Results] = lambda probe: {}
) -> dict[str, list[ProbeJudgement]]:
    """Machine to the judgement of each of its probes, in the order in which they ran. past: of a probe, as `judge` takes it."""
    found: dict[str, list[ProbeJudgement]] = {machine: [] for machine in results}
    for name in dict.fromkeys(item.probe for items in results.values() for item in items):
        now = {machine: item for machine, items in results.items() for item in items if item.probe == name}
        for machine, judgement in judge(now, past(name)).items():
            found[machine].append(judgement)
    return found


def judge_machine(machine: str, found: ProbeResult, everyone: Mapping[str, ProbeResult], past: Results) -> ProbeJudgement:
    """everyone: the newest result of each machine, this one's too."""
    if found.state == "failed":
        return ProbeJudgement(machine, found.probe, "fail", found.detail or "the probe found a fault", _not_judged(found))
    if found.state == "not_applicable":
        return ProbeJudgement(machine, found.probe, "not_applicable", found.detail, _not_judged(found))
    if found.state != "measured":
        return ProbeJudgement(machine, found.probe, "not_judged", found.detail or "nothing is known of it", _not_judged(found))
    equals = {
        name: other
        for name, other in everyone.items()
        if name != machine and other.state == "measured" and other.likeness == found.likeness
    }
    before = _alike(past.get(machine, ()), found)
    common = {name: _alike(past.get(name, ()), other) for name, other in equals.items()}
    verdicts = tuple(_judge_value(item, found, equals, before, common) for item in found.measures)
    known = (_say_equals(machine, found, everyone, len(equals)), len(equals), len(before))
    return _conclude(machine, found, verdicts, _missing(found, equals), known)


def worst(verdicts: Iterable[Judged]) -> Judged:
    """Of several: a fault before slowness, and what is not judged before a pass; what does not apply says nothing."""
    found = set(verdicts)
    return next((verdict for verdict in _ORDER if verdict in found), "not_judged")


def _judge_value(
    item: Measurement, found: ProbeResult, equals: Mapping[str, ProbeResult], before: Sequence[ProbeResult],
    common: Mapping[str, Sequence[ProbeResult]],
) -> MeasurementVerdict:  # fmt: skip
    def verdict(word: Judged, reference: _Reference | None = None) -> MeasurementVerdict:
        if reference is None:
            return MeasurementVerdict(item.name, item.device, item.value, item.unit, word)
        numbers = (reference.against, reference.expected, reference.limit)
        return MeasurementVerdict(item.name, item.device, item.value, item.unit, word, *numbers)

    if item.better == "none":
        return verdict("not_applicable")
    beside, own = (_of_equals(item, equals), _of_devices(item, found)), _of_past(item, before, common, equals)
    if item.better == "zero" and own is not None:
        beside = (None, None)  # an old error that is repaired stays in the count: only a new one speaks
    references = [reference for reference in (*beside, own) if reference is not None]
    if not references:
        return verdict("not_judged")
    bad = next((reference for reference in references if reference.deviates(item.value)), None)
    return verdict("pass", references[0]) if bad is None else verdict(item.bad, bad)


def _of_equals(item: Measurement, equals: Mapping[str, ProbeResult]) -> _Reference | None:
    theirs = [other for found in equals.values() if (other := _find(found, item)) is not None]
    return _reference(item, theirs, f"{len(theirs)} equal machines") if len(theirs) >= LEAST_PEERS else None


def _of_devices(item: Measurement, found: ProbeResult) -> _Reference | None:
    """A GPU beside the other GPUs of its machine. A port has no such equals: it may lead elsewhere by design."""
    if item.device is None or not item.device.startswith("gpu"):
        return None
    others = [other for other in found.measures if other.name == item.name and other.device not in (None, item.device)]
    return _reference(item, others, f"{len(others)} other GPUs of the machine") if len(others) >= LEAST_PEERS else None


def _of_past(
    item: Measurement, before: Sequence[ProbeResult], common: Mapping[str, Sequence[ProbeResult]], equals: Mapping[str, ProbeResult]
) -> _Reference | None:
    """Its own earlier values, times what became of its equals' values meanwhile."""
    earlier = [old for found in before if (old := _find(found, item)) is not None]
    against = f"{len(earlier)} earlier results of the machine"
    if len(earlier) < LEAST_PAST:
        return None
    if item.better in ("same", "zero"):
        return _reference(item, earlier, against)
    shares = [
        now.value / statistics.median(values)
        for name, other in equals.items()
        if (now := _find(other, item)) is not None
        and len(values := [old.value for found in common[name] if (old := _find(found, item)) is not None and old.value]) >= LEAST_PAST
    ]
    change = statistics.median(shares) if len(shares) >= 2 else 1.0
    return _reference(item, [replace(old, value=old.value * change) for old in earlier], against)


def _reference(item: Measurement, others: Sequence[Measurement], against: str) -> _Reference | None:
    """None where the values differ so much that one that is twice as slow would not be seen: they say nothing."""
    values = [other.value for other in others]
    expected = statistics.median(values)
    deviation = _NORMAL * statistics.median(abs(value - expected) for value in values)
    twice = {"higher": 0.5, "lower": 1.0}.get(item.better)
    if twice is not None and DEVIATIONS * deviation > max(twice * abs(expected), item.tolerance):
        return None
    share = SHARE if item.better in ("higher", "lower") else 0.0
    floor = _FLOOR * abs(expected) if item.better != "same" else 0.0
    tolerance = item.tolerance
    if item.better == "same":  # both sides of the comparison may be off by theirs: a clock that a busy machine was asked for, say
        tolerance += statistics.median(other.tolerance for other in others)
    return _Reference(against, expected, max(DEVIATIONS * deviation, share * abs(expected), floor, tolerance), item.better)


def _find(found: ProbeResult, item: Measurement) -> Measurement | None:
    return next((other for other in found.measures if (other.name, other.device) == (item.name, item.device)), None)


def _alike(earlier: Sequence[ProbeResult], found: ProbeResult) -> list[ProbeResult]:
    return [old for old in earlier if old.state == "measured" and old.likeness == found.likeness and old.started_s < found.started_s]


def _not_judged(found: ProbeResult) -> tuple[MeasurementVerdict, ...]:
    return tuple(MeasurementVerdict(item.name, item.device, item.value, item.unit, "not_judged") for item in found.measures)


def _conclude(
    machine: str, found: ProbeResult, verdicts: tuple[MeasurementVerdict, ...], missing: Sequence[str], known: tuple[str, int, int]
) -> ProbeJudgement:
    """missing: devices that every equal machine has. known: what is said of equal machines, how many there were, and earlier results."""
    judged = [item for item in verdicts if item.verdict != "not_applicable"]
    word = "fail" if missing else _word(item.verdict for item in judged)
    if word in ("fail", "slow"):
        lines = [f"{device} is missing: every equal machine has it" for device in missing]
        lines += [_say(item) for item in judged if item.verdict in ("fail", "slow")]
        return ProbeJudgement(machine, found.probe, word, "; ".join(lines), verdicts)
    if not judged and found.data:
        return ProbeJudgement(machine, found.probe, "not_judged", "it has data to compare, and no number", verdicts)
    if not judged:
        return ProbeJudgement(machine, found.probe, "pass", found.detail or "it found no fault, and has no number to compare", verdicts)
    if word == "pass":
        open_ = [_name(item) for item in judged if item.verdict == "not_judged"]
        parts = [f"as {next(item.against for item in judged if item.verdict == 'pass')}", *(f"{name} is not judged" for name in open_)]
        return ProbeJudgement(machine, found.probe, "pass", "; ".join(parts), verdicts)
    equals, others, before = known
    why = f"{equals}, {before} earlier results of its own ({LEAST_PAST} are needed)"
    if others >= LEAST_PEERS or before >= LEAST_PAST:
        why += "; their numbers differ too much to show one that is twice as slow"
    return ProbeJudgement(machine, found.probe, "not_judged", why, verdicts)


def _say_equals(machine: str, found: ProbeResult, everyone: Mapping[str, ProbeResult], equals: int) -> str:
    """Where there are too few, also in what the other machines differ: the reader sees that they were measured too."""
    facts = {"version": str(found.version), **found.facts}
    measured = [
        {"version": str(other.version), **other.facts}
        for name, other in everyone.items()
        if name != machine and (other.probe, other.state) == (found.probe, "measured")
    ]
    differs = sorted({fact for other in measured for fact in facts.keys() | other.keys() if facts.get(fact) != other.get(fact)})
    unlike = f"; {len(measured) - equals} others differ in {', '.join(differs)}" if differs and equals < LEAST_PEERS else ""
    return f"{equals} equal machines ({LEAST_PEERS} are needed{unlike})"


def _missing(found: ProbeResult, equals: Mapping[str, ProbeResult]) -> list[str]:
    """Devices that all equal machines have, and this one has not: a GPU, a port."""
    if len(equals) < LEAST_PEERS:
        return []
    theirs = [{item.device for item in other.measures if item.device} for other in equals.values()]
    return sorted(set.intersection(*theirs) - {item.device for item in found.measures})


def _word(verdicts: Iterable[Judged]) -> Literal["fail", "slow", "pass", "not_judged"]:
    """A number that could not be compared does not hide one that deviates, nor does it spoil one that passed."""
    found = set(verdicts)
    return "fail" if "fail" in found else "slow" if "slow" in found else "pass" if "pass" in found else "not_judged"


def _say(item: MeasurementVerdict) -> str:
    text = f"{_name(item)} is {item.value:.4g} {item.unit}".rstrip()
    return text + (f", {item.expected:.4g} on {item.against}" if item.expected is not None else "")


def _name(item: MeasurementVerdict) -> str:
    return item.name + (f" of {item.device}" if item.device else "")
