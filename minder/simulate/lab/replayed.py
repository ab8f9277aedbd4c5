"""A real dual-phase replay on this host: "machines" are groups of processes, one of them is faulty, and the search has to name it.

    python -m minder.simulate.lab.replayed --fault flip --faulty m2 [--order bisection]

Each group of a phase is a gloo job of its own, with a generation and a rendezvous store of its own, and all groups of a phase run at once.
Ranks are forked from this process, which has loaded torch and nothing else: loading it takes seconds. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from minder.act.recovery.generation_plan import GenerationPlan
from minder.act.recovery.groups import plan_groups
from minder.act.recovery.rendezvous import RendezvousHost
from minder.diagnose.diagnostics.replay import ReplayFinding, ReplayPhase, advance
from minder.diagnose.diagnostics.replay_layout import ReplayGroup, lay_out
from minder.diagnose.diagnostics.replay_runs import GroupOutcome, ReplayRun, join_runs, judge_phase
from minder.edge.probes.replay_lines import read_run
from minder.edge.probes.replay_model import RankTask, be_deterministic, play_rank
from minder.model.topology import Parallelism, Topology
from minder.simulate.lab.replay_faults import Fault, FaultyModel

__all__ = ["Replayed", "Trial", "replay"]

_SPARE_S = 5.0


@dataclass(frozen=True, slots=True)
class Trial:
    """A job, and what is wrong with one of its machines. steps, runs: of each group in each phase. seed: at which steps the fault comes.
    faulty_rank: instead, the fault is the program's, and follows that rank to whatever machine has it."""

    parallelism: Parallelism
    ranks_per_machine: int
    faulty: str = ""
    faulty_rank: int | None = None
    kind: str = "flip"
    steps: int = 100
    runs: int = 2
    seed: int = 0
    limit_s: float = 60.0

    @property
    def topology(self) -> Topology:
        count = self.parallelism.world_size // self.ranks_per_machine
        return Topology(tuple(f"m{index}" for index in range(count)), self.ranks_per_machine, self.parallelism)

    def fault(self, phase: int) -> Fault:
        """It comes in one step of each run, in another one each time."""
        draw = random.Random(1_000 * self.seed + phase)
        return Fault(self.kind, tuple(draw.sample(range(1, self.steps + 1), self.runs)))


@dataclass(slots=True)
class Replayed:
    """What was found and what it cost. phases: kind, wall_s, and each group with its generation, port and outcome."""

    finding: ReplayFinding
    machines: int
    phases: list[dict[str, Any]] = field(default_factory=list)

    @property
    def wall_s(self) -> float:
        return float(sum(phase["wall_s"] for phase in self.phases))


def replay(trial: Trial, folder: Path, order: Any = "dual") -> Replayed:
    """Search until a machine is named or nothing more can be. folder: for the rendezvous host and the ranks' answers."""
    be_deterministic()
    layout = lay_out(trial.topology)
    host = RendezvousHost.ensure(folder / "state", "127.0.0.1", ends_with_us=True)
    history: list[Sequence[GroupOutcome]] = []
    done = Replayed(advance(layout, history, order=order), len(layout.machines))
    try:
        generation = 0
        while (phase := done.finding.next) is not None:
            plans = plan_groups(
                "replay", {group.name: group.rank_machine for group in phase.groups}, after=generation, open_store=host.open,
                operation_id=f"replay-{phase.number}",
            )  # fmt: skip
            generation = max(plan.generation for plan in plans.values())
            history.append(_run_phase(trial, phase, plans, folder / f"phase{phase.number}", done))
            host.close_before(generation + 1)
            done.finding = advance(layout, history, order=order)
    finally:
        host.stop()
    return done


def _run_phase(
    trial: Trial, phase: ReplayPhase, plans: Mapping[str, GenerationPlan], folder: Path, done: Replayed
) -> Sequence[GroupOutcome]:
    folder.mkdir()
    begun_s = time.monotonic()
    children = {group.name: _start(trial, phase.number, group, plans[group.name], folder) for group in phase.groups}
    end_s = begun_s + trial.limit_s
    for group in children.values():
        for child in group:
            child.join(max(0.0, end_s - time.monotonic()))
    late = {name for name, group in children.items() if any(child.is_alive() for child in group)}
    for group in children.values():
        for child in group:
            child.kill()
            child.join()
    runs = {group.name: _read_runs(trial, group, folder, group.name in late) for group in phase.groups}
    alike = {machine: "this host" for group in phase.groups for machine in group.machines}
    outcomes = judge_phase(phase.groups, runs, alike)
    groups = [
        {"generation": plans[outcome.group].generation, "port": plans[outcome.group].master_port, **dataclasses.asdict(outcome)}
        for outcome in outcomes
    ]
    done.phases.append({"kind": phase.kind, "wall_s": round(time.monotonic() - begun_s, 2), "groups": groups})
    return outcomes


def _start(trial: Trial, phase: int, group: ReplayGroup, plan: GenerationPlan, folder: Path) -> list[Any]:
    """A process for each rank, each with what its launcher would hand on."""
    forked, children = multiprocessing.get_context("fork"), []
    for machine in group.machines:
        for local, assignment in enumerate(plan.request_for(machine, 0.0)["assignments"]):
            rank = int(assignment["env"]["RANK"])
            is_faulty = rank == trial.faulty_rank or (machine == trial.faulty and not local)
            fault = trial.fault(phase) if is_faulty else None
            files = tuple(folder / f"{group.name}-{rank}-{run}" for run in range(trial.runs))
            timeout_s = max(_SPARE_S, trial.limit_s - _SPARE_S)
            environment = {**assignment["env"], "GLOO_SOCKET_IFNAME": "lo"}
            task = RankTask(environment, group.parallelism, trial.steps, files, 0, timeout_s)
            children.append(forked.Process(target=play_rank, args=(task, partial(FaultyModel, fault)), daemon=True))
            children[-1].start()
    return children


def _read_runs(trial: Trial, group: ReplayGroup, folder: Path, late: bool) -> list[ReplayRun]:
    """The runs of a group from what its ranks wrote."""
    files = {rank: [folder / f"{group.name}-{rank}-{run}" for run in range(trial.runs)] for rank in group.rank_machine}
    ranks = {rank: [read_run(path, trial.steps, late=late) for path in paths] for rank, paths in files.items()}
    return join_runs(group, trial.runs, ranks, {})


def main() -> None:
    parser = argparse.ArgumentParser(description="Replay a small job on groups of its machines, and name the faulty one.")
    parser.add_argument("--tensor", type=int, default=2)
    parser.add_argument("--pipeline", type=int, default=2)
    parser.add_argument("--data", type=int, default=2)
    parser.add_argument("--ranks-per-machine", type=int, default=2)
    parser.add_argument("--faulty", default="m2", help='a machine, or "" for none')
    parser.add_argument("--faulty-rank", type=int, help="instead of a machine: the fault follows this rank")
    parser.add_argument("--fault", default="flip", choices=("flip", "nan", "crash"))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--order", default="dual", choices=("dual", "bisection"))
    given = parser.parse_args()
    parallelism = Parallelism(given.tensor, given.pipeline, given.data)
    faulty = given.faulty if given.faulty_rank is None else ""
    trial = Trial(parallelism, given.ranks_per_machine, faulty, given.faulty_rank, given.fault, given.steps, given.runs, given.seed)
    with tempfile.TemporaryDirectory(prefix="minder-replay-") as folder:
        done = replay(trial, Path(folder), given.order)
    found = dataclasses.asdict(done.finding)
    print(json.dumps({**found, "phases": done.phases, "wall_s": round(done.wall_s, 2), "machine_s": round(done.wall_s * done.machines, 1)}))


if __name__ == "__main__":
    main()
