"""What strikes, and when: drawn from a seed, the same each time (pure).

A schedule is a sequence of strikes. Each comes `gap_s` after the job has settled from the one before; one that is `joined` comes so long
after the one before it, whatever state the job is in by then. `pick` chooses among the machines that can be hit at that moment.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

__all__ = ["CI_KINDS", "KINDS", "Kind", "Strike", "cut", "draw", "read", "rounds", "shown"]

Target = Literal["training", "standby", "pair", "none"]


@dataclass(frozen=True, slots=True)
class Kind:
    """faulty: the machine may be evicted for it. stops: the job stands by it, so an incident has to say so. heal_s: it is undone after so
    long, where nothing repairs the machine before. root: it needs machines made of namespaces, or a mount. gone: it goes on until its
    machine has no rank any more. lost: nothing runs on its machines until they are repaired. drawn: False where no seed draws it."""

    what: str
    target: Target = "none"
    faulty: bool = False
    stops: bool = False
    heal_s: float | None = None
    root: bool = False
    gone: bool = False
    lost: bool = False
    drawn: bool = True


@dataclass(frozen=True, slots=True)
class Strike:
    """number: its place in the schedule as it was drawn, which a shrunk schedule keeps."""

    number: int
    kind: str
    gap_s: float
    pick: float
    joined: bool = False


_TRAINS: Target = "training"
KINDS: dict[str, Kind] = {
    # machines, as the lab has them
    "hang": Kind("a machine's ranks are stopped", _TRAINS, faulty=True, stops=True),
    "crash": Kind("a rank is killed", _TRAINS, stops=True),
    "crash-sticky": Kind("a machine kills what the job starts there", _TRAINS, faulty=True, stops=True, gone=True),
    "xid": Kind("the kernel reports an uncorrectable error", _TRAINS, faulty=True, stops=True, root=True),
    "slow-cpu": Kind("a third of the processor is left", _TRAINS, faulty=True, heal_s=90.0, root=True),
    "slow-link": Kind("the data link is slow", _TRAINS, faulty=True, heal_s=90.0, root=True),
    "dead-link": Kind("the data link drops everything", _TRAINS, faulty=True, stops=True, root=True, gone=True),
    "oom": Kind("the kernel kills a rank for memory", _TRAINS, faulty=True, stops=True, root=True),
    "machine-lost": Kind("a machine is gone with its memory", _TRAINS, faulty=True, stops=True, gone=True, lost=True),
    "disk-full": Kind("a machine's disk is full", _TRAINS, faulty=True, heal_s=30.0, root=True),
    "exception": Kind("every rank raises", stops=True),
    "nan": Kind("a rank's gradient is not finite", _TRAINS, faulty=True, stops=True),
    "busy": Kind("a rank computes for ever", _TRAINS, faulty=True, stops=True),
    # the job's processes beside its ranks
    "launcher-killed": Kind("a launcher dies and is started again", _TRAINS),
    "launcher-stopped": Kind("a launcher is stopped for a while", _TRAINS, heal_s=15.0),
    "cache-killed": Kind("a checkpoint cache dies", _TRAINS),
    "cache-stopped": Kind("a checkpoint cache is stopped for a while", _TRAINS, heal_s=10.0),
    "pair-lost": Kind("a machine and the one with its backup are gone", "pair", faulty=True, stops=True, lost=True),
    "backup-cache": Kind("a machine is gone, and its backup's cache dies", "pair", faulty=True, stops=True, lost=True),
    # standbys
    "standby-lost": Kind("a standby is gone", "standby", faulty=True, heal_s=40.0, lost=True),
    "standby-link": Kind("a standby's data link is dead", "standby", faulty=True, heal_s=60.0, root=True),
    "standby-stopped": Kind("a standby's launcher is stopped", "standby", faulty=True, heal_s=30.0),
    # the site's processes
    "agent-lost": Kind("an agent dies and is started again", _TRAINS, heal_s=10.0),
    "agent-stopped": Kind("an agent is stopped for a while", _TRAINS, heal_s=20.0),
    "agent-upgrade": Kind("an agent comes back as another version", _TRAINS),
    "agent-clock": Kind("an agent's clock is wrong by a minute and a half", _TRAINS, heal_s=40.0),
    "prometheus-killed": Kind("Prometheus dies", heal_s=20.0),
    "prometheus-late": Kind("Prometheus answers late", heal_s=25.0),
    # the controller
    "controller-killed": Kind("the controller that leads is killed"),
    "controller-stopped": Kind("the controller that leads is stopped until another leads, and wakes up"),
    "controller-network": Kind("the controller reaches no machine", heal_s=20.0, root=True),
    "controller-clock": Kind("a controller starts with a wrong clock", heal_s=40.0),
    "ledger-full": Kind("the ledger's disk is full", heal_s=15.0, root=True),
    "ledger-errors": Kind("writes to the ledger fail", heal_s=15.0),
    "ledger-read-only": Kind("controllers start on a ledger that is read only", heal_s=15.0, root=True),
    # orders
    "update": Kind("another version of the code, which computes the same"),
    "update-urgent": Kind("another version of the code, at once"),
    "return": Kind("evicted machines are repaired and given back"),
    "evict-healthy": Kind("a person orders a healthy machine out: the judge has to see it", _TRAINS, drawn=False),
}  # fmt: skip
CI_KINDS = (  # what the job has settled from within a minute, on four machines and two standbys that take a step a second
    "hang", "crash", "xid", "oom", "dead-link", "machine-lost", "launcher-killed", "cache-killed", "backup-cache", "agent-upgrade",
    "agent-clock", "controller-killed", "controller-stopped", "ledger-full", "update-urgent", "return",
)  # fmt: skip
_JOINED_SHARE, _JOINED_WITHIN_S = 0.25, 8.0


def draw(seed: int, count: int, every_s: tuple[float, float] = (60.0, 120.0), kinds: Sequence[str] = ()) -> list[Strike]:
    """So many strikes, of all kinds if none is given. Every kind comes once before any comes twice, in an order that the seed decides.

    >>> draw(3, 4) == draw(3, 6)[:4], sorted(strike.kind for strike in draw(3, 2, kinds=["hang", "oom"]))
    (True, ['hang', 'oom'])
    """
    chance = random.Random(seed)
    found: list[Strike] = []
    deck: list[str] = []
    while len(found) < count:
        if not deck:
            deck = list(kinds) or [name for name, kind in KINDS.items() if kind.drawn]
            chance.shuffle(deck)
        joined = chance.random() < _JOINED_SHARE and bool(found) and not found[-1].joined
        gap_s = chance.uniform(0.0, _JOINED_WITHIN_S) if joined else chance.uniform(*every_s)
        found.append(Strike(len(found) + 1, deck.pop(), round(gap_s, 1), round(chance.random(), 3), joined))
    return found


def cut(schedule: Sequence[Strike], until: int | None = None, after: int = 0) -> list[Strike]:
    """Strikes up to number `until`, those up to `after` left out: the first that is left is joined to nothing."""
    kept = [strike for strike in schedule if strike.number > after and (until is None or strike.number <= until)]
    return [replace(kept[0], joined=False), *kept[1:]] if kept else []


def rounds(schedule: Sequence[Strike]) -> list[list[Strike]]:
    """Strikes that come together, in order."""
    found: list[list[Strike]] = []
    for strike in schedule:
        if strike.joined and found:
            found[-1].append(strike)
        else:
            found.append([strike])
    return found


def shown(schedule: Sequence[Strike]) -> str:
    """A line for each, as `read` takes it."""
    return "".join(json.dumps(asdict(strike)) + "\n" for strike in schedule)


def read(text: str) -> list[Strike]:
    """Empty lines are left out. Raises ValueError for a line that is no strike, or of an unknown kind."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            strike = Strike(**json.loads(line))
        except (TypeError, ValueError) as error:
            raise ValueError(f"line {number} of the schedule is no strike: {error}") from error
        if strike.kind not in KINDS:
            raise ValueError(f"line {number} of the schedule: no kind {strike.kind}; there are {', '.join(KINDS)}")
        found.append(strike)
    return found
