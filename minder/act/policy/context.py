"""The state of the job, and of what stands around it, at the moment of deciding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from minder.act.policy.ladder import OFFERED
from minder.model.observation import JobView
from minder.model.topology import Parallelism

__all__ = ["PolicyContext", "Rollback", "Sizes", "Skips"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What lets a job go on with fewer machines. least: never fewer machines. full: machines that it has at full size. refused: why its
    checkpoint is not read at another size, "" where it is."""

    least: int
    full: int
    parallelism: Parallelism
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Rollback:
    """The last change of the job's code, and what it is taken back to. of, to: versions; since_s, since_generation: when `of` began to run.
    refused: why minder does not take it back by itself, "" where it may. unreadable: why `to` has no checkpoint to go on from, "" where it
    has one."""

    of: int
    to: int
    since_s: float
    since_generation: int
    refused: str = ""
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class Skips:
    """Batches that the job leaves out. held: now, as text (minder.model.batch_ranges). today: how many were ordered within 24 hours. saved:
    of each complete checkpoint its step, and what its run left out; None: not known. refused: why minder orders none by itself, "" where it
    may: "off" by its setting, or "dry_run". waits: an order that the next generation applies, "" for none."""

    held: str = ""
    today: int = 0
    saved: tuple[tuple[int, str], ...] | None = None
    refused: Literal["", "off", "dry_run"] = ""
    waits: str = ""


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """All that the policy knows besides verdicts and history.

    `domains`: what each machine hangs on, {"node-1": {"rack": "r1", "switch": "leaf-3"}}.
    `standbys_out`: the job's other standbys, and what keeps each from being ready.
    `standby_turns`: standby to its turn by what probes prove of it; one of a greater turn is used where none of a smaller is left.
    `gpus`: devices of the job (workers where there are none); prices are in their seconds.
    `suspects`: machines that were accused (page or evict) and when, in unix seconds; those named in this call are added.
    `in_progress`: the operation that is under way for this job. `other_jobs`: further jobs on each machine.
    `workers_dead`: a worker of the job is gone and the job cannot go on without a restart.
    `machines_lost`: machines whose launcher does not answer: a restart in place cannot succeed while the job needs one of them.
    `by_launchers`: launchers of ours start the job's ranks.
    `speed_lost_share`: 0.2 = the job makes 20 % fewer steps per second than it should; None: unknown.
    `remaining_s`: how long the job would still run; None: unknown.
    `ranks_fixed`: why ranks cannot move to other machines here; "" where they can.
    `largest_group`: machines of the job's largest parallel group that is small enough to be evicted whole; 1 where none is known.
    `answering`: machines whose agent or launcher was heard within the last seconds.
    `restart_refused`: why the job cannot be started again as it is, by us; "" if it can.
    `hangs`: the job stands as a whole, its processes alive.
    `engine_refuses`: machine to why the engine that owns it does not let it be taken now.
    `parallelism`: the job's axes, for the spread of its groups; None: not known, or minder only watches.
    `sizes`: how small the job may become; None: it never goes on with fewer machines.
    `rollback`: what can be taken back of the job's code; None: it runs what its launchers were started with.
    `update_waits`: the order of an update that the next generation applies, "" for none.
    `skips`: batches that the job leaves out, and whether it may leave out more; None: minder only watches.
    `offers`: rungs of the ladder, and what runs beside them, that this job's actuator or engine can do: OFFERED everywhere, WITH_LAUNCHERS
    too where its launchers run probes.
    """

    now_s: float
    job: JobView
    standbys_ready: tuple[str, ...] = ()
    standby_turns: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    gpus: int = 1
    largest_group: int = 1
    answering: frozenset[str] = frozenset()
    since_checkpoint_s: float = 0.0
    expected_restart_s: float = 30.0
    other_jobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    in_progress: str | None = None
    suspects: Mapping[str, float] = field(default_factory=dict)
    workers_dead: bool = False
    machines_lost: frozenset[str] = frozenset()
    by_launchers: bool = False
    speed_lost_share: float | None = None
    remaining_s: float | None = None
    engine_refuses: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False
    restart_refused: str = ""
    standbys_out: Mapping[str, str] = field(default_factory=dict)
    ranks_fixed: str = ""
    parallelism: Parallelism | None = None
    sizes: Sizes | None = None
    offers: frozenset[str] = OFFERED
    rollback: Rollback | None = None
    update_waits: str = ""
    skips: Skips | None = None
