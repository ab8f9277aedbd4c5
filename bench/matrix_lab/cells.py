"""The matrix as data: trainers, faults, and what must come of each.

A machine is spoken of by its role: `target` and `second` are two machines of the job that the seed chooses. `rank` is the rank that the
target holds at first; a trouble of the rank goes where the rank goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["CI_CELLS", "FAULTS", "TRAINERS", "Cell", "Expectation", "Fault", "Injection", "Trainer", "every_cell", "pairs"]

Role = Literal["target", "second"]
TARGET: tuple[Role, ...] = ("target",)
BOTH: tuple[Role, ...] = ("target", "second")
STEP, LATER = 14, 18  # checkpoints are at 10, 20, 30


@dataclass(frozen=True, slots=True)
class Trainer:
    """checkpoint_kib: what one checkpoint takes; a full disk has room for two and a half."""

    name: str
    script: str
    checkpoint_kib: int


TRAINERS: dict[str, Trainer] = {
    trainer.name: trainer
    for trainer in (
        Trainer("ddp", "ddp.py", 204),
        Trainer("fsdp2", "fsdp2.py", 1368),
        Trainer("hf", "hf_trainer.py", 452),
        Trainer("lightning", "lightning_fit.py", 204),
        Trainer("handler", "own_handler.py", 204),
    )
}


@dataclass(frozen=True, slots=True)
class Expectation:
    """evictable: no other machine may be evicted. gone: these run no rank at the end, after at most `failures` failures each.

    end: how the job ends. evidence: a pattern that the ledger's verdicts, decisions or captures must show where the job ends as failed.
    """

    evictable: tuple[Role, ...] = ()
    gone: tuple[Role, ...] = ()
    end: Literal["finished", "failed"] = "finished"
    evidence: str = ""
    failures: int = 3


@dataclass(frozen=True, slots=True)
class Injection:
    """What the bench does from outside: `kind` of injectors.py, to whom, at which steps."""

    kind: str
    steps: tuple[int, ...] = (STEP,)


@dataclass(frozen=True, slots=True)
class Fault:
    """One row. shows: hang or crash; blame: machine, program, site or unknown; recurs: once, or with the machine, rank or site.

    inside: troubles for the script (bench/jobs/trainers/trouble.py), with {"on": role} instead of machine or rank names.
    outside: what an injector does. by_trainer: where a trainer makes something else of it. trainers: empty for all.
    """

    name: str
    what: str
    shows: Literal["hang", "crash"]
    blame: Literal["machine", "program", "site", "unknown"]
    recurs: Literal["once", "machine", "rank", "site"]
    expect: Expectation
    inside: tuple[Mapping[str, Any], ...] = ()
    outside: Injection | None = None
    by_trainer: Mapping[str, Expectation] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)  # of the script
    full_disk: bool = False
    trainers: tuple[str, ...] = ()

    def expectation(self, trainer: str) -> Expectation:
        return self.by_trainer.get(trainer, self.expect)


_GONE = Expectation(TARGET, TARGET)
_SURVIVES = Expectation()
_ENDS = {  # what the person who opens the incident must find
    "exit": Expectation(end="failed", evidence=r"exit\w*( code| status)? ?3\b|\"code\": ?3\b"),
    "exception": Expectation(end="failed", evidence=r"cannot decode sample"),
    "disk": Expectation(end="failed", evidence=r"No space left|write failed|unexpected pos|PytorchStreamWriter|Errno 28|ENOSPC"),
    "nan": Expectation(end="failed", evidence=r"\bnan\b|non-?finite|not finite"),
}


def _of_rank(what: str, times: int, step: int = STEP) -> dict[str, Any]:
    return {"what": what, "rank_of": "target", "step": step, "times": times}


def _of_machine(what: str, times: int = 0, step: int = STEP, **more: Any) -> dict[str, Any]:
    return {"what": what, "machine_of": "target", "step": step, "times": times, **more}


FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("sigstop", "SIGSTOP of a machine's processes, each time it gets a rank", "hang", "machine", "machine", _GONE,
              outside=Injection("stop-target")),
        Fault("busy-poll", "a machine's rank polls its device for ever, at 100 % of a core", "hang", "machine", "machine", _GONE,
              (_of_machine("busy-poll"),)),
        Fault("sigkill", "one SIGKILL", "crash", "unknown", "once", _SURVIVES, outside=Injection("kill-rank")),
        Fault("sigkill-twice", "SIGKILL of the same rank twice", "crash", "unknown", "once", _SURVIVES,
              outside=Injection("kill-rank", (STEP, 24))),
        Fault("exit-once", "sys.exit(3) in one rank, once", "crash", "program", "once", _SURVIVES, (_of_rank("exit", 1),)),
        Fault("exit-always", "sys.exit(3) in one rank at its step, always", "crash", "program", "rank", _ENDS["exit"],
              (_of_rank("exit", 0),)),
        Fault("exception-always", "an exception in one rank at its step, always", "crash", "program", "rank", _ENDS["exception"],
              (_of_rank("exception", 0),)),
        Fault("extra-all-reduce", "a rank calls one all_reduce more, twice at the same step", "hang", "program", "rank", _SURVIVES,
              (_of_rank("extra-all-reduce", 2),)),
        Fault("other-group", "a rank calls a collective of another group, twice at the same step", "hang", "program", "rank", _SURVIVES,
              (_of_rank("other-group", 2),)),
        Fault("loader", "a data-loader worker blocks in a read for ever, once", "hang", "site", "once", _SURVIVES, (_of_rank("loader", 1),),
              options={"workers": 1}),
        Fault("full-disk", "the checkpoints' file system fills up", "crash", "site", "site", _ENDS["disk"], full_disk=True),
        Fault("nan-rank", "a batch of one rank is NaN, always", "crash", "program", "rank", _ENDS["nan"], (_of_rank("nan", 0),),
              by_trainer={"hf": _SURVIVES}),  # nothing in Trainer stops for a NaN
        Fault("killer-machine", "a machine kills whatever rank it gets", "crash", "machine", "machine", _GONE,
              outside=Injection("kill-on-target")),
        Fault("xid", "an exception text seen on another machine, now with an Xid 79 in the machine's kernel log", "crash", "machine",
              "machine", _GONE,
              ({"what": "text", "rank_of": "second", "step": STEP, "times": 1}, _of_machine("text", step=LATER, kernel_log=True))),
        Fault("two-stops", "SIGSTOP on one machine, after the recovery on another at the same step", "hang", "machine", "machine",
              Expectation(BOTH, BOTH), outside=Injection("stop-both")),
        Fault("dead-link", "a machine's link drops everything at the first step after every resume", "hang", "machine", "machine", _GONE,
              outside=Injection("drop-link")),
        Fault("six-crashes", "six unknown crashes of different ranks, 200 steps apart", "crash", "unknown", "once", _SURVIVES,
              outside=Injection("kill-in-turn", tuple(range(150, 1350, 200))), trainers=("ddp",),
              options={"steps": 1300, "step-seconds": 0.03, "save-every": 50}),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    trainer: str
    fault: str

    def __str__(self) -> str:
        return f"{self.trainer}:{self.fault}"


def every_cell() -> tuple[Cell, ...]:
    """Fault by fault: a bench that is stopped early has whole rows."""
    cells = (Cell(trainer, fault.name) for fault in FAULTS.values() for trainer in fault.trainers or TRAINERS)
    return tuple(cells)


def pairs(cell: Cell) -> set[tuple[str, str]]:
    """What a cell tries together: the trainer with how it shows and with whether a machine is to blame, and these with how it recurs."""
    fault = FAULTS[cell.fault]
    shows, blame, recurs = fault.shows, "a machine" if fault.blame == "machine" else "no machine", f"recurs: {fault.recurs}"
    return {(cell.trainer, shows), (cell.trainer, blame), (shows, blame), (shows, recurs), (blame, recurs)}


# Every trainer twice, ten faults, and every pair that the table has (tests/scenarios/test_matrix.py counts them).
CI_CELLS = (
    Cell("ddp", "dead-link"),
    Cell("ddp", "exit-always"),
    Cell("fsdp2", "killer-machine"),
    Cell("fsdp2", "other-group"),
    Cell("hf", "sigstop"),
    Cell("hf", "full-disk"),
    Cell("lightning", "two-stops"),
    Cell("lightning", "sigkill"),
    Cell("handler", "xid"),
    Cell("handler", "loader"),
)
