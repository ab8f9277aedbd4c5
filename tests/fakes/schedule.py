"""What happens to a simulated job, and when: a seeded list of actions that can be written down, replayed and made smaller."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

__all__ = ["MACHINES", "STANDBYS", "Action", "Schedule", "draw", "shrink"]

MACHINES, STANDBYS = ("m0", "m1", "m2", "m3"), ("s0", "s1", "s00")
SPARE = frozenset({"standby_died", "no_standby", "agent_silent", "standby_fails"})  # what can neither end nor delay a job
FAULTS = frozenset(
    {"bad_batch", "update", "disk", "bits", "hang", "deadlock", "crash", "rank_crash", "oom", "ecc", "lost", "launcher", "evict", "order"}
    | {"slow"}
)


@dataclass(frozen=True)
class Action:
    """at_s: after the job's start. machine: of those actions that have one. amount: seconds, a count or a rank; flag: what it needs."""

    at_s: float
    name: str
    machine: str = ""
    amount: float = 0.0
    flag: str = ""


@dataclass(frozen=True)
class Schedule:
    """approval: as in policy.approval; on_timeout: what the site wants then. ladder: as policy.ladder.order. least: min_machines, 0: not
    set. grow_s: as grow_after_s. rollback, skip: as policy.rollback, policy.skip_batches. slow: as policy.ladder.slow_machines."""

    seed: int
    actions: tuple[Action, ...]
    approval: str = "none"
    on_timeout: str = "page"
    ladder: str = "default"
    least: int = 0
    grow_s: float = 0.0
    rollback: str = "auto"
    skip: str = "auto"
    slow: str = "evict"

    @property
    def only_spares(self) -> bool:
        return all(action.name in SPARE for action in self.actions)

    def text(self) -> str:
        """One line that `Schedule.read` takes."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Schedule:
        row = json.loads(text)
        return cls(**{**row, "actions": tuple(Action(**item) for item in row["actions"])})


def _machine(dice: random.Random) -> str:
    return dice.choice(MACHINES)


# One entry an action: how often it is drawn, and how. A new action of the product is a line here and a method in scene.py.
KINDS: dict[str, tuple[int, Callable[[random.Random, float], Action]]] = {
    "hang": (3, lambda dice, at_s: Action(at_s, "hang", _machine(dice), dice.choice([1, 1, 50]))),
    "deadlock": (1, lambda dice, at_s: Action(at_s, "deadlock")),
    "crash": (3, lambda dice, at_s: Action(at_s, "crash", _machine(dice), dice.choice([1, 1, 2, 50]))),
    "rank_crash": (1, lambda dice, at_s: Action(at_s, "rank_crash", amount=dice.randrange(4), flag=dice.choice(["1", "2", "50"]))),
    "oom": (1, lambda dice, at_s: Action(at_s, "oom", _machine(dice), dice.choice([1, 1, 2]))),
    "ecc": (2, lambda dice, at_s: Action(at_s, "ecc", _machine(dice), 1)),
    "disk": (2, lambda dice, at_s: Action(at_s, "disk", _machine(dice), dice.choice([2, 2, 50]))),
    "bits": (2, lambda dice, at_s: Action(at_s, "bits", _machine(dice), dice.choice([3, 3, 50]))),
    "slow_probes": (1, lambda dice, at_s: Action(at_s, "slow_probes", amount=dice.choice([3.0, 40.0, 100.0]))),
    "lost": (3, lambda dice, at_s: Action(at_s, "lost", _machine(dice), dice.choice([5.0, 20.0, 90.0, 1e9]))),
    "launcher": (2, lambda dice, at_s: Action(at_s, "launcher", dice.choice(MACHINES + STANDBYS))),
    "standby_died": (2, lambda dice, at_s: Action(at_s, "standby_died", dice.choice(STANDBYS), dice.choice([10.0, 60.0, 1e9]))),
    "no_standby": (1, lambda dice, at_s: Action(at_s, "no_standby", "", dice.choice([30.0, 120.0, 1e9]))),
    "standby_fails": (2, lambda dice, at_s: Action(at_s, "standby_fails", dice.choice(STANDBYS), dice.choice([20.0, 90.0, 1e9]))),
    "agent_silent": (1, lambda dice, at_s: Action(at_s, "agent_silent", dice.choice(MACHINES + STANDBYS), dice.uniform(2.0, 60.0))),
    "kill": (4, lambda dice, at_s: Action(at_s, "kill", "", dice.randrange(1, 15), dice.choice(["write", "write", "effect", "probe"]))),
    "rival": (2, lambda dice, at_s: Action(at_s, "rival", "", dice.randrange(1, 15))),
    "unwritable": (1, lambda dice, at_s: Action(at_s, "unwritable", "", dice.choice([3.0, 15.0, 60.0]))),
    "pause": (2, lambda dice, at_s: Action(at_s, "pause", "", dice.choice([20.0, 60.0, 120.0]), dice.choice(["all", "job"]))),
    "unpause": (1, lambda dice, at_s: Action(at_s, "unpause")),
    "maintenance": (1, lambda dice, at_s: Action(at_s, "maintenance", dice.choice(MACHINES + STANDBYS), dice.choice([20.0, 60.0]))),
    "answer": (2, lambda dice, at_s: Action(at_s, "answer", flag=dice.choice(["approved", "approved", "rejected"]))),
    "order": (1, lambda dice, at_s: Action(at_s, "order")),
    "evict": (1, lambda dice, at_s: Action(at_s, "evict", _machine(dice))),
    "return": (2, lambda dice, at_s: Action(at_s, "return", dice.choice(MACHINES + STANDBYS))),
    "retest": (1, lambda dice, at_s: Action(at_s, "retest", dice.choice(MACHINES + STANDBYS))),
    "update": (
        2,
        lambda dice, at_s: Action(at_s, "update", amount=dice.choice([0, 0, 1]), flag=dice.choice(["good", "good", "bad", "broken"])),
    ),
    "take_back": (1, lambda dice, at_s: Action(at_s, "take_back", amount=dice.choice([0, 1]))),
    "refuses": (1, lambda dice, at_s: Action(at_s, "refuses", dice.choice(MACHINES + STANDBYS), dice.choice([20.0, 60.0]))),
    "bad_batch": (2, lambda dice, at_s: Action(at_s, "bad_batch", amount=dice.choice([2, 2, 5]), flag=dice.choice(["-1", "-1", "1", "3"]))),
    "skip": (1, lambda dice, at_s: Action(at_s, "skip", amount=dice.choice([-3, 1, 4]))),
    "unskip": (1, lambda dice, at_s: Action(at_s, "unskip")),
    "slow": (
        3,
        lambda dice, at_s: Action(
            at_s, "slow", _machine(dice), dice.choice([30.0, 120.0, 1e9]), dice.choice(["evict", "page", "link", "none"])
        ),
    ),
    "clock": (1, lambda dice, at_s: Action(at_s, "clock", "", dice.choice([-3600.0, -30.0, 30.0, 3600.0]))),
}


def draw(seed: int) -> Schedule:
    """One to three bursts of actions close together, most of which hold a fault: what goes wrong goes wrong in between two others. One
    schedule in ten has to do with spares alone."""
    dice = random.Random(seed)
    names = sorted(SPARE & set(KINDS)) if dice.random() < 0.1 else list(KINDS)
    at_s, actions = 0.0, list[Action]()
    for _ in range(dice.randint(1, 3)):
        for place in range(dice.randint(1, 5)):
            at_s += dice.choice([0.0, 0.0, 0.5, 1.0, 3.0, 8.0])
            likely = [name for name in names if name in FAULTS] if place == 1 else []
            chosen = likely or names
            name = dice.choices(chosen, [KINDS[item][0] for item in chosen])[0]
            actions.append(KINDS[name][1](dice, round(at_s, 1)))
        at_s += dice.choice([12.0, 30.0, 60.0])
    approval = dice.choice(["none", "none", "none", "required"])
    on_timeout = dice.choice(["page", "reject", "approve"])
    ladder = dice.choice(["default", "default", "default", "published"])
    least = dice.choice([0, 0, 2, 3])
    grow_s = dice.choice([0.0, 20.0]) if least else 0.0
    rollback, skip = (dice.choice(["auto", "auto", "off"]) for _ in range(2))
    slow = dice.choice(["evict", "prove"])
    return Schedule(seed, tuple(actions), approval, on_timeout, ladder, least, grow_s, rollback, skip, slow)


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """The least of it that still fails: halves, then single actions are left out as long as it does."""
    size = max(1, len(schedule.actions) // 2)
    while True:
        for begin in range(0, len(schedule.actions), size):
            smaller = replace(schedule, actions=_without(schedule.actions, begin, size))
            if fails(smaller):
                schedule = smaller
                break
        else:
            if size == 1:
                return schedule
            size = max(1, size // 2)


def _without(actions: Sequence[Action], begin: int, size: int) -> tuple[Action, ...]:
    return tuple(actions[:begin]) + tuple(actions[begin + size :])
