"""Which rungs of the ladder each cell must climb, as data, and whether a cell did (pure).

A climb is written as its rungs in order, such as `reattempt diagnose trial`; `page` is a person. `must` is a regular expression over it:
where several climbs are right, `why` says why. What stands here follows from docs/ladder.md, docs/rules.md and what each fault is.

A job that stands, and of which no machine is named, calls a person at once, and is started again once it has stood for
`restart_hung_after_s`: that page is right before such a restart, and nowhere else.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from matrix_lab.cells import Cell
from minder.model.decision import RungName

__all__ = ["CLIMBS", "PERSON", "Climb", "misclimbed", "right_climb", "rung_rows"]

PERSON = "page"
_KNOWN = get_args(RungName)


@dataclass(frozen=True, slots=True)
class Climb:
    """must: what the whole climb has to match. by_trainer: where a trainer makes something else of the fault."""

    must: str
    why: str
    by_trainer: Mapping[str, Climb] = field(default_factory=dict)


_STOOD = "(page )?reattempt"
_NAMED = f"evict|{_STOOD}( (page )?diagnose)? (trial|evict)"
_NAMED_WHY = (
    "a hang whose machine connections or processes name evicts at once; where its stack alone stands apart it is unknown like a crash, "
    "and the second hang gives its ranks to a standby"
)
_MISMATCH = Climb(
    f"{_STOOD}( {_STOOD}|( (page )?diagnose)? trial)?",
    "ranks in different collectives are the program's, and the job starts again; where stacks alone set the rank apart, the second hang "
    "is tried on a standby; no machine is evicted",
)

CLIMBS: Mapping[str, Climb] = {
    "sigstop": Climb(_NAMED, _NAMED_WHY),
    "busy-poll": Climb(_NAMED, _NAMED_WHY),
    "sigkill": Climb("reattempt", "an unknown crash, for the first time"),
    "sigkill-twice": Climb("reattempt diagnose trial", "the same rank of the same machine again: all is tested, then the machine is tried"),
    "exit-once": Climb("reattempt", "an unknown crash, for the first time"),
    "exit-always": Climb(
        "reattempt diagnose trial( reattempt){0,3} page",
        "unknown until it has followed the rank to a standby; the program's from then on, and a person's after three restarts",
    ),
    "exception-always": Climb(
        "reattempt( reattempt){0,2} page", "an exception of the program: no machine is tried, and after three restarts a person is called"
    ),
    "extra-all-reduce": _MISMATCH,
    "other-group": _MISMATCH,
    "loader": Climb(_STOOD, "a hang in which a loader waits for a file is no machine's"),
    "full-disk": Climb(
        "reattempt( reattempt| diagnose| trial)* page",
        "an error of the program or unknown, by how the trainer dies of it; it comes back wherever the rank is, so it ends with a person",
    ),
    "nan-rank": Climb(
        "(reattempt )?diagnose trial( reattempt){0,3} page",
        "trainers that stop for a NaN crash, unknown at first; the tests find nothing, and it follows the rank to a standby",
        {
            "hf": Climb("", "nothing in Trainer stops for a NaN"),
            "fsdp2": Climb(
                "reattempt diagnose replay( reattempt( page)?)* page",
                "the norm over all ranks names none, and no step is read by which the batch were known: tests and a replay find no machine",
            ),
        },
    ),
    "killer-machine": Climb(
        "reattempt diagnose (trial|evict)", "an unknown crash that comes back: tested, and then its ranks go elsewhere, which puts it right"
    ),
    "xid": Climb("reattempt evict", "the text alone is an unknown crash; with an Xid of the machine the evidence evicts at once"),
    "two-stops": Climb(f"({_NAMED}) ({_NAMED})", f"one after the other: {_NAMED_WHY}"),
    "dead-link": Climb(_NAMED, _NAMED_WHY),
    "six-crashes": Climb(
        "reattempt( reattempt| diagnose trial){5}",
        "each is unknown and of another rank; a rank of the same machine again is tested and tried, as the ladder says of what comes back",
    ),
}


def right_climb(cell: Cell) -> Climb:
    climb = CLIMBS[cell.fault]
    return climb.by_trainer.get(cell.trainer, climb)


def misclimbed(climb: Climb, rungs: Sequence[tuple[str, float | None]]) -> list[str]:
    """What is wrong with it, in words.

    >>> misclimbed(Climb("reattempt", "an unknown crash"), [("reattempt", 16.1)])
    []
    >>> misclimbed(Climb("reattempt", "an unknown crash"), [("evict", 12.0)])
    ['climbed evict instead of reattempt']
    """
    if unknown := [name for name, _ in rungs if name not in _KNOWN]:
        return [f"unknown rung {', '.join(dict.fromkeys(unknown))}"]
    climbed = " ".join(name for name, _ in rungs)
    if re.fullmatch(climb.must, climbed):
        return []
    return [f"climbed {climbed or 'no rung'} instead of {climb.must or 'no rung'}"]


def rung_rows(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, str, str]]:
    """By fault: (fault, cells, the climbs that were made, each rung's seconds from the decision to the next first step: median (worst)).

    >>> rung_rows([{"cell": "ddp:sigkill", "rungs": [["reattempt", 9.0]]}, {"cell": "hf:sigkill", "rungs": [["reattempt", 16.0]]}])
    [('sigkill', 2, '2 reattempt', 'reattempt 12.5 (16.0)')]
    """
    found = []
    for fault in CLIMBS:
        climbs = [row["rungs"] for row in rows if row["cell"].partition(":")[2] == fault and "rungs" in row]
        if not climbs:
            continue
        words = [" ".join(name for name, _ in climb) or "no rung" for climb in climbs]
        counted = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        times: dict[str, list[float]] = {}
        for name, seconds in (pair for climb in climbs for pair in climb):
            times.setdefault(name, []).extend([] if seconds is None else [seconds])
        timed = ", ".join(f"{name} {statistics.median(all_s):.1f} ({max(all_s):.1f})" for name, all_s in times.items() if all_s)
        found.append((fault, len(climbs), counted, timed or "-"))
    return found
