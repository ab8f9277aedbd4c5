"""The newest traced steps of a job that runs, and what the analysis says of them.

Workers report their steps one by one, in any order and from several machines. A step is whole when every worker of the grid has it; the
grid is what the workers say themselves. Memory is bounded by rows: of a job of thousands of workers fewer steps are kept, never less
than four.

Shape legend: N operations of one pipeline, T steps, D data-parallel ranks, P pipeline stages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minder.diagnose.step_traces.advice import advise
from minder.diagnose.step_traces.analysis import Analysis, analyse, rounded
from minder.diagnose.step_traces.meta import JobLayout
from minder.diagnose.step_traces.trace import build_trace
from minder.model.errors import TraceError, WireError
from minder.model.evidence import NOT_JUDGED, StepStudy, StudiedWorker

if TYPE_CHECKING:
    import polars as pl

__all__ = ["LEAST_STEPS", "TraceWindow", "TracedStep", "read_traced_step"]

LEAST_STEPS, _STEPS = 4, 8  # in a study
_KEPT_STEPS, _KEPT_ROWS = 48, 1_000_000
_Worker = tuple[int, int]  # dp_rank, stage


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One worker's operations of one step. begin_s: unix seconds; begin_N, seconds_N: after it, and how long, waiting included."""

    dp_rank: int
    stage: int
    rank: int
    step: int
    begin_s: float
    kinds: tuple[str, ...]
    kind_N: np.ndarray
    begin_N: np.ndarray
    seconds_N: np.ndarray
    microbatch_N: np.ndarray
    chunk_N: np.ndarray

    @property
    def worker(self) -> _Worker:
        return self.dp_rank, self.stage

    @property
    def signature(self) -> tuple[tuple[str, int], ...]:
        """Its operations by kind: only steps with the same can be studied together."""
        count = np.bincount(self.kind_N, minlength=len(self.kinds))
        return tuple(sorted((kind, int(number)) for kind, number in zip(self.kinds, count, strict=True)))

    @property
    def end_s(self) -> float:
        return self.begin_s + float((self.begin_N + self.seconds_N).max())


def read_traced_step(row: Mapping[str, Any], behind_s: float = 0.0) -> TracedStep:
    """One step as an agent or launcher sends it. behind_s: what its clock is to be corrected by. Raises WireError."""
    try:
        kinds = tuple(str(word) for word in row["kinds"])
        kind_N = np.asarray(row["kind"], dtype=np.int64)
        arrays = [
            np.asarray(row[name], dtype=kind) for name, kind in (("begin", float), ("seconds", float), ("mb", np.int64), ("mc", np.int64))
        ]
        whole = [int(row[name]) for name in ("dp_rank", "stage", "rank", "step")]
        begin_s = float(row["begin_s"]) + behind_s
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise WireError(f"no traced step: {type(error).__name__} {error}") from error
    shapes = {array.shape for array in (kind_N, *arrays)}
    good = len(shapes) == 1 and kind_N.ndim == 1 and kind_N.size > 0 and kind_N.min() >= 0 and kind_N.max() < len(kinds)
    times = good and np.isfinite(arrays[0]).all() and np.isfinite(arrays[1]).all() and math.isfinite(begin_s)
    if not times or not all(0 <= number < 2**31 for number in whole):
        raise WireError("no traced step: its columns do not fit together")
    dp_rank, stage, rank, step = whole
    begin_N, seconds_N, microbatch_N, chunk_N = arrays
    return TracedStep(dp_rank, stage, rank, step, begin_s, kinds, kind_N, begin_N, seconds_N, microbatch_N, chunk_N)


class TraceWindow:
    """`add` what the machines report, `study` now and then. Begin anew with each generation: ranks stand on other machines then."""

    def __init__(self) -> None:
        self._steps: dict[int, dict[_Worker, TracedStep]] = {}
        self._grid: set[_Worker] = set()
        self._machine: dict[_Worker, str] = {}
        self._rows = 0
        self._studied = 0

    @property
    def empty(self) -> bool:
        return not self._grid

    @property
    def fresh(self) -> int:
        """Whole steps that came since the last study."""
        return sum(number > self._studied for number in self._whole())

    def add(self, machine: str, step: TracedStep) -> None:
        """Of several ranks of one worker the lowest counts."""
        own = self._steps.setdefault(step.step, {})
        known = own.get(step.worker)
        if known is not None and known.rank <= step.rank:
            return
        self._rows += step.kind_N.size - (0 if known is None else known.kind_N.size)
        own[step.worker] = step
        self._grid.add(step.worker)
        self._machine[step.worker] = machine
        while len(self._steps) > LEAST_STEPS and (len(self._steps) > _KEPT_STEPS or self._rows > _KEPT_ROWS):
            dropped = self._steps.pop(min(self._steps))
            self._rows -= sum(item.kind_N.size for item in dropped.values())

    def study(self, now_s: float, since_s: float | None = None) -> StepStudy | None:
        """Of the newest whole steps; of those since `since_s` alone where there are enough. None: too few to say anything yet.

        A trace that cannot be analysed is a study that is not judged, with the reason: this raises nothing.
        """
        missing = self._missing()
        if missing:
            return StepStudy(now_s, NOT_JUDGED, missing)
        whole = self._whole()
        if len(whole) < LEAST_STEPS:
            return None
        self._studied = whole[-1]
        recent = [number for number in whole if since_s is not None and self._begin_s(number) >= since_s]
        chosen = self._alike((recent if len(recent) >= LEAST_STEPS else whole)[-_STEPS:])
        if len(chosen) < LEAST_STEPS:
            return StepStudy(now_s, NOT_JUDGED, "the traced steps differ in their operations: fewer than four are alike")
        try:
            analysis = analyse(build_trace(self._frame(chosen), self._layout(), "of the running job"))
        except TraceError as error:
            return StepStudy(now_s, NOT_JUDGED, str(error))
        return self._answer(now_s, analysis, chosen)

    def _missing(self) -> str:
        ranks, stages = 1 + max(rank for rank, _ in self._grid), 1 + max(stage for _, stage in self._grid)
        for worker in ((rank, stage) for rank in range(ranks) for stage in range(stages)):
            if worker not in self._grid:
                return f"dp rank {worker[0]} of stage {worker[1]} reported no traced step: trace all ranks, the same sample everywhere"
        return ""

    def _whole(self) -> list[int]:
        return sorted(number for number, own in self._steps.items() if len(own) == len(self._grid))

    def _begin_s(self, number: int) -> float:
        return min(item.begin_s for item in self._steps[number].values())

    def _alike(self, numbers: Iterable[int]) -> list[int]:
        """Those whose operations are those of most of them."""
        kinds = {number: tuple(sorted((worker, item.signature) for worker, item in self._steps[number].items())) for number in numbers}
        if not kinds:
            return []
        (usual, _), *_ = Counter(kinds.values()).most_common(1)
        return [number for number, kind in kinds.items() if kind == usual]

    def _layout(self) -> JobLayout:
        chunks = max(int(item.chunk_N.max()) for own in self._steps.values() for item in own.values())
        ranks, stages = 1 + max(rank for rank, _ in self._grid), 1 + max(stage for _, stage in self._grid)
        return JobLayout(ranks, stages, vpp_size=max(1, chunks + 1))

    def _frame(self, numbers: Iterable[int]) -> pl.DataFrame:
        """The public schema; starts count from the step's first."""
        import polars as pl

        parts = []
        for number in numbers:
            first_s = self._begin_s(number)
            for item in self._steps[number].values():
                parts.append(
                    pl.DataFrame({
                        "optype": pl.Series(item.kinds, dtype=pl.String).gather(item.kind_N),
                        "start_ts": item.begin_s - first_s + item.begin_N,
                        "duration": np.maximum(item.seconds_N, 0.0),
                        "mc": item.chunk_N,
                        "mb_id": item.microbatch_N,
                    }).with_columns(dp_rank=pl.lit(item.dp_rank), stage=pl.lit(item.stage), rank=pl.lit(item.rank), step=pl.lit(number))
                )  # fmt: skip
        worker = ["dp_rank", "stage", "step", "optype"]
        stages = 1 + max(stage for _, stage in self._grid)
        compute = pl.col("optype").str.ends_with("-compute")
        return (
            pl.concat(parts)
            .sort("start_ts")
            .with_columns(
                seq_id=pl.int_range(pl.len(), dtype=pl.Int64).over(worker),
                gmc=pl.when(compute).then(pl.col("mc") * stages + pl.col("stage")).otherwise(-1),
            )
        )

    def _answer(self, now_s: float, analysis: Analysis, numbers: list[int]) -> StepStudy:
        found, finding = analysis.study, analysis.finding
        own = [item for number in numbers for item in self._steps[number].values()]
        blamed = tuple(dict.fromkeys(self._machine[worker] for worker in finding.blame))
        return StepStudy(
            now_s, finding.cause, advise(analysis), len(numbers), numbers[0], numbers[-1],
            min(item.begin_s for item in own), max(item.end_s for item in own),
            slowdown=rounded(found.slowdown),
            waste=rounded(found.waste),
            worst_workers_share=rounded(found.worst_workers_share),
            last_stage_share=rounded(found.last_stage_share),
            replay_error=rounded(found.replay_error),
            trusted=analysis.trusted,
            seconds=rounded(float(found.simulated_T.mean())),
            ideal_s=rounded(found.ideal_s),
            fixed_s=rounded(finding.fixed_s),
            blamed=blamed,
            workers=_workers(analysis, self._machine),
        )  # fmt: skip


def _workers(analysis: Analysis, machine: Mapping[_Worker, str]) -> tuple[StudiedWorker, ...]:
    """Stage by stage."""
    trace, balance = analysis.trace, analysis.balance
    forward_PD, backward_PD = (_seconds(analysis, kind) for kind in ("forward-compute", "backward-compute"))
    return tuple(
        StudiedWorker(
            rank, stage, int(trace.rank_PD[stage, rank]), machine[rank, stage],
            round(float(forward_PD[stage, rank]), 6), round(float(backward_PD[stage, rank]), 6),
            round(float(analysis.study.worker_PD[stage, rank]), 6),
            rounded(float(balance.against_peers_PD[stage, rank])), rounded(float(balance.steady_PD[stage, rank])),
        )
        for stage in range(trace.layout.pp_size) for rank in range(trace.layout.dp_size)
    )  # fmt: skip


def _seconds(analysis: Analysis, kind: str) -> np.ndarray:
    """PD, of a mean step."""
    trace = analysis.trace
    seconds_PD = np.zeros((trace.layout.pp_size, trace.layout.dp_size))
    for index, operation in enumerate(trace.operations):
        if operation.kind == kind:
            seconds_PD[operation.stage] += trace.duration_NTD[index].mean(axis=0)
    return seconds_PD
