"""Step traces of jobs that never ran: an executor of its own, not the simulator under test.

Stages work through 1F1B (interleaved with vpp > 1) as a real job does: a receive is posted when the stage gets there, a transfer
begins when both ends are there, collectives end for all when the last one has come. What is recorded includes the waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

Row = dict[str, object]
FORWARD_S, BACKWARD_S, TRANSFER_S, COLLECTIVE_S = 0.10, 0.20, 0.002, 0.03


@dataclass(frozen=True)
class Job:
    """worker and stage: factors on compute time, by (dp_rank, stage) and by stage. length: factor by (step, dp_rank, microbatch).

    link: seconds of a transfer that leaves or enters (dp_rank, stage); slow_worker_steps: steps in which `worker` counts (None: all).
    """

    dp: int = 4
    pp: int = 4
    vpp: int = 1
    microbatches: int = 8
    steps: int = 5
    noise: float = 0.01
    seed: int = 0
    worker: dict[tuple[int, int], float] = field(default_factory=dict)
    slow_worker_steps: Callable[[int], bool] | None = None
    stage: dict[int, float] = field(default_factory=dict)
    length: Callable[[int, int, int], float] | None = None
    link: dict[tuple[int, int], float] = field(default_factory=dict)
    collective: dict[tuple[str, int], float] = field(default_factory=dict)

    @property
    def meta(self) -> str:
        return f"dp_size: {self.dp}\npp_size: {self.pp}\ntp_size: 1\ndsp_size: 1\nvpp_size: {self.vpp}\nworld_size: {self.dp * self.pp}\n"


def schedule(job: Job, stage: int) -> list[tuple[str, int, int]]:
    """(direction, chunk, microbatch) in the order in which the stage computes them."""
    total = job.microbatches * job.vpp

    def place(index: int, forward: bool) -> tuple[int, int]:
        if job.vpp == 1:
            return 0, index
        chunk = index % (job.pp * job.vpp) // job.pp
        microbatch = index // (job.pp * job.vpp) * job.pp + index % job.pp
        return (chunk if forward else job.vpp - 1 - chunk), microbatch

    warm = job.pp - 1 - stage if job.vpp == 1 else (job.pp - 1 - stage) * 2 + (job.vpp - 1) * job.pp
    warm = min(warm, total)
    order = [("forward", *place(index, True)) for index in range(warm)]
    for index in range(total - warm):
        order += [("forward", *place(index + warm, True)), ("backward", *place(index, False))]
    return order + [("backward", *place(index, False)) for index in range(total - warm, total)]


class _Pipeline:
    """One data-parallel rank in one step."""

    def __init__(self, job: Job, rng: np.random.Generator, step: int, rank: int, ready_s: list[float]) -> None:
        self.job, self.rng, self.step, self.rank = job, rng, step, rank
        self.clock = list(ready_s)
        self.rows: list[Row] = []
        self.sent: dict[tuple[str, int, int], float] = {}  # launched sends by (direction, receiving model chunk, microbatch)
        self.posted: dict[tuple[str, int, int], tuple[int, float]] = {}
        self.queues = [schedule(job, stage) for stage in range(job.pp)]

    def run(self) -> None:
        while any(self.queues):
            if not any(self._advance(stage) for stage in range(self.job.pp)):
                raise AssertionError("the schedule is stuck")

    def _advance(self, stage: int) -> bool:
        if not self.queues[stage]:
            return False
        direction, chunk, microbatch = self.queues[stage][0]
        model_chunk = chunk * self.job.pp + stage
        onward = 1 if direction == "forward" else -1
        key = (direction, model_chunk, microbatch)
        if 0 <= model_chunk - onward < self.job.pp * self.job.vpp:
            self.posted.setdefault(key, (stage, self.clock[stage]))
            if key not in self.sent:
                return False
            self._receive(stage, key, onward)
        self._compute(stage, direction, chunk, microbatch)
        if 0 <= model_chunk + onward < self.job.pp * self.job.vpp:
            self.sent[direction, model_chunk + onward, microbatch] = self.clock[stage]
        self.queues[stage].pop(0)
        return True

    def _receive(self, stage: int, key: tuple[str, int, int], onward: int) -> None:
        sender = (key[1] - onward) % self.job.pp
        seconds = max(self.job.link.get((self.rank, end), TRANSFER_S) for end in (stage, sender)) * self._jitter()
        end_s = max(self.sent[key], self.posted[key][1]) + seconds
        self._row(stage, f"{key[0]}-recv", self.posted[key][1], end_s)
        self._row(sender, f"{key[0]}-send", self.sent[key], end_s)
        self.clock[stage] = max(self.clock[stage], end_s)

    def _compute(self, stage: int, direction: str, chunk: int, microbatch: int) -> None:
        job = self.job
        seconds = (FORWARD_S if direction == "forward" else BACKWARD_S) * job.stage.get(stage, 1.0) * self._jitter()
        if job.slow_worker_steps is None or job.slow_worker_steps(self.step):
            seconds *= job.worker.get((self.rank, stage), 1.0)
        if job.length is not None:
            seconds *= job.length(self.step, self.rank, microbatch)
        begin_s = self.clock[stage]
        self.clock[stage] += seconds
        self._row(stage, f"{direction}-compute", begin_s, self.clock[stage], (chunk, microbatch, chunk * job.pp + stage))

    def _jitter(self) -> float:
        return float(np.exp(self.rng.normal(0.0, self.job.noise)))

    def _row(self, stage: int, kind: str, start_s: float, end_s: float, place: tuple[int, int, int] = (-1, -1, -1)) -> None:
        self.rows.append(
            {"dp_rank": self.rank, "stage": stage, "rank": stage * self.job.dp + self.rank, "step": self.step, "optype": kind,
             "start_ts": start_s, "duration": end_s - start_s, "mc": place[0], "mb_id": place[1], "gmc": place[2]}
        )  # fmt: skip

    def together(self, others: list[_Pipeline], kind: str, stages: list[int], chunk: int = -1) -> None:
        """A collective of these stages on all of these pipelines: it ends for all at once."""
        everybody = [(line, stage) for line in others for stage in stages]
        seconds = max(self.job.collective.get((kind, stage), COLLECTIVE_S) for stage in stages) * self._jitter()
        end_s = max(line.clock[stage] for line, stage in everybody) + seconds
        for line, stage in everybody:
            line._row(stage, kind, line.clock[stage], end_s, (chunk, -1, -1))
            line.clock[stage] = end_s


def generate(job: Job) -> pl.DataFrame:
    """The trace in the public schema: 32-bit times, starts counted from the step's first."""
    rng = np.random.default_rng(job.seed)
    rows: list[Row] = []
    for step in range(10, 10 + 7 * job.steps, 7):
        lines = [_Pipeline(job, rng, step, rank, [float(rng.random() * 0.004) for _ in range(job.pp)]) for rank in range(job.dp)]
        stages = list(range(job.pp))
        for stage in stages:
            for chunk in range(job.vpp):
                lines[0].together(lines, "params-all-gather", [stage], chunk)
        for line in lines:
            line.run()
        _finish(job, lines, stages)
        rows += [row for line in lines for row in line.rows]
    frame = pl.DataFrame(rows).sort("step", "dp_rank", "stage", "optype", "start_ts")
    number = pl.int_range(pl.len()).over("step", "dp_rank", "stage", "optype").alias("seq_id")
    since = pl.col("start_ts") - pl.col("start_ts").min().over("step")
    return frame.with_columns(number, since).cast({"start_ts": pl.Float32, "duration": pl.Float32, "optype": pl.Categorical})


def _finish(job: Job, lines: list[_Pipeline], stages: list[int]) -> None:
    for line in lines:
        for stage in stages:
            line._row(stage, "gc", line.clock[stage], line.clock[stage], (-1, 0, -1))
        if job.pp > 1:
            line.together([line], "embedding-grads-all-reduce", [0, job.pp - 1])
    for stage in stages:
        for chunk in range(job.vpp):
            lines[0].together(lines, "grads-reduce-scatter", [stage], chunk)
    lines[0].together(lines, "optimizer-clip-main-grad", stages)
    for line in lines:
        for stage in stages:
            line._row(stage, "optimizer", line.clock[stage], line.clock[stage] + 0.02 * line._jitter())


def write_job(job: Job, folder: Path) -> tuple[Path, Path]:
    """trace.parquet and meta.yaml in the folder."""
    trace, meta = folder / "trace.parquet", folder / "meta.yaml"
    generate(job).write_parquet(trace)
    meta.write_text(job.meta, encoding="utf-8")
    return trace, meta
