"""The shape of a job: its machines, what stands where, how long a step takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.ingest.sources.jobfile import RecordedJob
from minder.model.topology import Parallelism
from minder.simulate.cluster.recipe import JobRules

__all__ = ["JobShape", "draw_shape"]


@dataclass(frozen=True, slots=True)
class JobShape:
    """One job. stage_M: the pipeline stage of each machine; group_M: its data-parallel group within the stage."""

    machines: tuple[str, ...]
    standbys: tuple[str, ...]
    gpus_per_machine: int
    parallelism: Parallelism
    stage_M: np.ndarray
    step_s: float

    @property
    def stages(self) -> int:
        return self.parallelism.pipeline

    def recorded(self, name: str, interval_s: float) -> RecordedJob:
        return RecordedJob(name, self.machines, self.standbys, self.gpus_per_machine, self.parallelism, interval_s, self._domains())

    def _domains(self) -> dict[str, dict[str, str]]:
        """Four machines a rack, sixteen a leaf switch, in the order of the job."""
        return {machine: {"rack": f"r{i // 4:02d}", "switch": f"leaf-{i // 16}"} for i, machine in enumerate(self.machines)}


def draw_shape(rules: JobRules, rng: np.random.Generator) -> JobShape:
    """A shape that obeys the rules: pipelines that do not fit into the largest job are left out."""
    gpus = int(rng.choice(rules.gpus_per_machine))
    span = int(rng.choice(rules.tensor_machines))
    low, high = rules.machines
    fitting = [stages for stages in rules.pipeline if stages * span <= high] or [min(rules.pipeline)]
    stages = int(rng.choice(fitting))
    wanted = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    unit = stages * span
    replicas = max(1, -(-int(low) // unit), min(round(wanted / unit), int(high) // unit))
    count = replicas * unit
    numbers = rng.choice(max(2000, 2 * count), size=count + 2, replace=False)
    names = [f"node-{number:04d}" for number in numbers]
    data = replicas
    experts = [expert for expert in rules.expert if data % expert == 0] or [1]
    parallelism = Parallelism(tensor=gpus * span, pipeline=stages, data=data, expert=int(rng.choice(experts)))
    stage_M = np.arange(count) // (count // stages)
    return JobShape(
        tuple(names[:count]), tuple(names[count:]), gpus, parallelism, stage_M, float(np.exp(rng.uniform(*np.log(rules.step_s))))
    )
