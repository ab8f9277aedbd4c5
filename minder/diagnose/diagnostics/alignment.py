"""Bit-wise alignment judged: machines of equal hardware and libraries must have computed the same bits (pure).

A machine whose own repetitions differ has failed. Otherwise the strict majority of equal machines is right, and one that stands alone
against it has failed. Several that agree with each other against the majority are not corrupt in the same way by chance: they differ in
something that their facts do not say, and are not judged. Where there is no majority (two machines, say), the machine's own earlier hashes
decide; two machines that differ, and of which no earlier hash is known, are not judged. The first tensor in the order of execution that
differs says at which coordinate the fault began: all that differs later may only have received it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from minder.model.errors import BadInputError
from minder.model.probes import Judged, ProbeJudgement, ProbeResult

__all__ = ["AlignmentRun", "AlignmentVerdict", "TensorHash", "first_difference", "judge_alignment", "judge_results", "read_run"]

AlignmentState = Literal["pass", "fail", "not_judged"]


@dataclass(frozen=True, slots=True)
class TensorHash:
    """coordinate: "dense tp1 pp0 dp1". tensor: "forward stage0.layer1.attention.qkv"."""

    coordinate: str
    tensor: str
    sha256: str


@dataclass(frozen=True, slots=True)
class AlignmentRun:
    """What one machine computed. facts: hardware, driver and libraries: runs of other facts are never compared. digest: of all hashes.
    tensors: in the order of execution; may be empty in a run of the past. differs: where its own repetitions differ first. devices: the
    device of each coordinate, where there are several. problem: why there is no result."""

    machine: str
    facts: Mapping[str, str]
    digest: str
    tensors: tuple[TensorHash, ...] = ()
    differs: TensorHash | None = None
    devices: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AlignmentVerdict:
    """first: the first tensor that differs; None if none does, or if only digests were compared. device: where it was computed, "" if the
    machine has one only. against: what the machine was compared with."""

    machine: str
    state: AlignmentState
    reason: str
    first: TensorHash | None = None
    device: str = ""
    against: str = ""


def read_run(machine: str, document: Mapping[str, Any]) -> AlignmentRun:
    """The program's document as a record. Raises BadInputError where it is none."""
    try:
        state, data = document["state"], document["data"]
        if state not in ("measured", "failed"):
            return AlignmentRun(machine, dict(document.get("facts", {})), "", problem=str(document.get("detail") or state))
        tensors = tuple(TensorHash(*map(str, row)) for row in data.get("tensors", ()))
        differs = TensorHash(*map(str, data["first"])) if "first" in data else None
        return AlignmentRun(machine, dict(document["facts"]), str(data["digest"]), tensors, differs, dict(data.get("devices", {})))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInputError(f"the alignment of {machine} is no document of that probe ({error}): run the probe of this version") from None


def judge_alignment(
    runs: Sequence[AlignmentRun], history: Mapping[str, Sequence[AlignmentRun]] | None = None
) -> dict[str, AlignmentVerdict]:  # fmt: skip
    """Machine to verdict. runs: one of each machine. history: earlier runs of a machine, oldest first; those with other facts, or without a
    result, do not count."""
    past, verdicts = history or {}, {}
    for run in runs:
        equals = [other for other in runs if other.facts == run.facts and not other.problem and other.differs is None]
        verdicts[run.machine] = _judge(run, equals, past)
    return verdicts


def judge_results(results: Mapping[str, ProbeResult], past: Mapping[str, Sequence[ProbeResult]]) -> dict[str, ProbeJudgement]:
    """The same of probes' results. past: machine to earlier ones, oldest first; of a machine that is not among `results`, the newest counts
    as an equal machine's."""
    earlier = {machine: [run for item in found if (run := _run_of(machine, item)) is not None] for machine, found in past.items()}
    absent = [found[-1] for machine, found in earlier.items() if machine not in results and found]
    unread = "its result cannot be read"
    now = [_run_of(machine, item) or AlignmentRun(machine, {}, "", problem=unread) for machine, item in results.items()]
    verdicts = judge_alignment([*absent, *now], earlier)
    judgements = {}
    for machine, found in results.items():
        word: Judged = "not_applicable" if found.state == "not_applicable" else verdicts[machine].state
        judgements[machine] = ProbeJudgement(machine, found.probe, word, verdicts[machine].reason)
    return judgements


def _run_of(machine: str, found: ProbeResult) -> AlignmentRun | None:
    document = {"state": found.state, "detail": found.detail, "facts": found.facts, "data": found.data}
    with contextlib.suppress(BadInputError):
        return read_run(machine, document)
    return None


def first_difference(run: AlignmentRun, right: AlignmentRun) -> TensorHash | None:
    """The first tensor of `run`, in the order of execution, that is not as in `right`; None if all are, or if either has digests only."""
    expected = {(item.coordinate, item.tensor): item.sha256 for item in right.tensors}
    return next((item for item in run.tensors if expected and expected.get((item.coordinate, item.tensor)) != item.sha256), None)


def _judge(run: AlignmentRun, equals: Sequence[AlignmentRun], past: Mapping[str, Sequence[AlignmentRun]]) -> AlignmentVerdict:
    if run.problem:
        return AlignmentVerdict(run.machine, "not_judged", run.problem)
    if run.differs is not None:
        return _failed(run, run.differs, "two runs of the same step on it differ", "its own repetition")
    counts = Counter(other.digest for other in equals)
    right, most = counts.most_common(1)[0]
    if 2 * most <= len(equals) or len(equals) == 1:
        return _judge_by_past(run, equals, past)
    majority = [other for other in equals if other.digest == right]
    if _was_otherwise(run, majority, past):
        reason = f"{len(majority)} of {len(equals)} equal machines changed their result and it kept its own: look at what was changed"
        return AlignmentVerdict(run.machine, "not_judged", reason)
    against = f"{most} of {len(equals)} equal machines"
    if run.digest == right:
        return AlignmentVerdict(run.machine, "pass", f"equal, to the last bit, on {against}", against=against)
    if counts[run.digest] > 1:
        reason = f"{counts[run.digest]} machines agree with each other and differ from {against}: they differ in something not known here"
        return AlignmentVerdict(run.machine, "not_judged", reason, first_difference(run, majority[0]), against=against)
    return _failed(run, first_difference(run, majority[0]), f"it alone differs from {against}", against)


def _judge_by_past(run: AlignmentRun, equals: Sequence[AlignmentRun], past: Mapping[str, Sequence[AlignmentRun]]) -> AlignmentVerdict:
    """No majority: the machine alone, or as many against as for it."""
    own = _own_past(run, past)
    others = len(equals) - 1
    peers = "no equal machine is there" if not others else f"{others} equal machine{'s' * (others > 1)} and no majority"
    if not own:
        return AlignmentVerdict(run.machine, "not_judged", f"{peers}, and no earlier result of its own is known")
    against = f"{len(own)} earlier result{'s' * (len(own) > 1)} of its own"
    if len({other.digest for other in own}) > 1:
        return AlignmentVerdict(run.machine, "not_judged", f"{peers}, and its own earlier results differ", against=against)
    if run.digest != own[-1].digest:
        return _failed(run, first_difference(run, own[-1]), f"it differs from {against} ({peers})", against)
    return AlignmentVerdict(run.machine, "pass", f"equal to {against} ({peers})", against=against)


def _own_past(run: AlignmentRun, past: Mapping[str, Sequence[AlignmentRun]]) -> list[AlignmentRun]:
    known = past.get(run.machine, ())
    return [other for other in known if other.facts == run.facts and not other.problem and other.differs is None]


def _was_otherwise(run: AlignmentRun, majority: Sequence[AlignmentRun], past: Mapping[str, Sequence[AlignmentRun]]) -> bool:
    """The majority contradicts its own past and this machine does not: then it is no majority of unchanged machines."""
    own = {other.digest for other in _own_past(run, past)}
    changed = [other for other in majority if (before := _own_past(other, past)) and before[-1].digest != other.digest]
    return own == {run.digest} and run.digest != majority[0].digest and 2 * len(changed) > len(majority)


def _failed(run: AlignmentRun, first: TensorHash | None, why: str, against: str) -> AlignmentVerdict:
    place = run.devices.get(first.coordinate, "") if first else ""
    where = f", first at {first.coordinate}: {first.tensor}" + (f" ({place})" if place else "") if first else ""
    return AlignmentVerdict(run.machine, "fail", why + where, first, place, against)
