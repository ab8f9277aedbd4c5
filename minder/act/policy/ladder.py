"""The ladder: which rungs there are, for which trouble, in which order. Data, and the rule by which one is chosen. Pure.

A verdict is a trouble of one kind (minder.act.policy.blame). The climb looks at the rungs from the first to the last, and takes the first
that is for this trouble and can be used. One that cannot is passed over, and the decision says why. The last rung is a person, always.
A rung's rank is its place in the list: of decisions at the same time the highest rank acts, and the others wait for it.

Sources: ByteRobust (arXiv 2509.16293, sections 4, 5 and 7). `published` is its order; docs/adr/0020 says why the default differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from minder.model.decision import RungName
from minder.model.errors import ConfigError

__all__ = [
    "ACTION_OF",
    "OFFERED",
    "PERSON",
    "TROUBLES",
    "WITH_LAUNCHERS",
    "WITH_SKIPS",
    "WITH_UPDATES",
    "LadderConfig",
    "Rung",
    "Trouble",
    "read_ladder",
]

Trouble = Literal["machine", "network", "program", "data", "unknown", "nan", "hang", "slow", "standstill", "order"]
TROUBLES: dict[Trouble, str] = {
    "machine": "evidence that belongs to the machine: a kernel or driver line, a lost device, silence",
    "network": "nothing but links of one machine that flap or stay down",
    "program": "an error of the program, or one that followed the rank, the step or the code to another machine",
    "data": "all ranks' numbers go wrong at one batch, or those of one rank at the same batch on two machines",
    "unknown": "a failure that may be the machine's or the program's",
    "nan": "one rank's own gradient is not finite, or all ranks' numbers came back, not known to be at the same batch",
    "hang": "the job hangs, and the analysis names a machine or a parallel group",
    "slow": "the job is slow, and the analysis names a machine or a parallel group",
    "standstill": "the job stands as a whole, or lost its workers, and no machine is named",
    "order": "a person orders the restart, an update waits no longer, or a job that runs on fewer machines is to grow again",
}
# What a rung has done. Rungs without an action of their own are passed over until they are offered (PolicyContext.offers).
ACTION_OF: dict[RungName, Literal["evict", "trial", "restart", "diagnose", "replay", "page"]] = {
    "evict": "evict",
    "over_evict": "evict",
    "trial": "trial",
    "reattempt": "restart",
    "rollback": "restart",
    "skip_batch": "restart",
    "diagnose": "diagnose",
    "replay": "replay",
    "page": "page",
}
WITH_LAUNCHERS = frozenset({"diagnose", "probes", "replay"})  # only where the job's launchers run probes, and replay the job
WITH_UPDATES = frozenset({"rollback"})  # only after an update, where the site lets minder take it back
WITH_SKIPS = frozenset({"skip_batch"})  # only where the job's loader leaves batches out when asked to
OFFERED: frozenset[str] = frozenset(ACTION_OF) - WITH_LAUNCHERS - WITH_UPDATES - WITH_SKIPS  # everywhere


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rung(_Strict):
    """One rung of a ladder of the site's own. rung: what is done. on: the kinds of trouble that it is for. times: how often it is
    climbed for the same trouble within `window_s`; not set: as often as budgets and restarts allow. For `reattempt` every restart counts
    that the trouble has outlived. after: the rung is passed over until the trouble has come back so often. beside: what runs while the
    rung does, if it is offered. beside_s: the time limit of that, in seconds."""

    rung: RungName
    on: tuple[Trouble, ...]
    times: int | None = Field(default=None, ge=1)
    after: int = Field(default=0, ge=0)
    beside: tuple[Literal["probes"], ...] = ()
    beside_s: float = Field(default=10.0, gt=0, le=10)

    @model_validator(mode="after")
    def _is_no_person(self) -> Rung:
        if self.rung == "page":
            raise ValueError('rung "page" is the last one of every ladder: leave it out')
        return self


PERSON = Rung.model_construct(rung="page", on=get_args(Trouble), times=None, after=0, beside=(), beside_s=10.0)

_GO_ON = Rung(rung="reattempt", on=("program", "data", "standstill", "order"))
_SKIP = Rung(rung="skip_batch", on=("data",), after=1)
_ISOLATE = (
    Rung(rung="over_evict", on=("hang", "slow")),
    Rung(rung="evict", on=("machine", "network", "hang", "slow")),
)
_ORDERS: dict[str, tuple[Rung, ...]] = {
    "default": (
        Rung(rung="rollback", on=("program",), times=1, after=1),
        _SKIP,
        _GO_ON,
        Rung(rung="reattempt", on=("unknown",), times=1, beside=("probes",)),
        Rung(rung="rollback", on=("unknown",), times=1, after=1),
        Rung(rung="diagnose", on=("unknown", "nan"), times=1),
        Rung(rung="trial", on=("unknown", "nan")),
        Rung(rung="rollback", on=("nan",), times=1),
        Rung(rung="replay", on=("unknown", "nan"), times=1),
        *_ISOLATE,
    ),
    "published": (
        Rung(rung="rollback", on=("program",), times=1),
        _SKIP,
        _GO_ON,
        Rung(rung="diagnose", on=("unknown", "nan"), times=1),
        Rung(rung="reattempt", on=("unknown", "nan"), times=1),
        Rung(rung="rollback", on=("unknown", "nan"), times=1),
        Rung(rung="replay", on=("unknown", "nan"), times=1),
        *_ISOLATE,
    ),
}


class LadderConfig(_Strict):
    """What is done about which trouble, in order (docs/ladder.md). order: `default`, or `published` for the paper's. rungs: a ladder of
    the site's own, from the first rung to the last before a person; not set: those of `order`. network_alerts: what two alerts of one
    machine's links within five minutes lead to. slow_machines: `evict` as the rules say, or `prove`: only once traced steps,
    pair tests or probes say that the machine costs the time, and the job is stopped and tested for that. window_s: so long a climb is
    remembered. distrust_evictions: a machine that was evicted
    so often within `distrust_window_s`, in any job, is given no ranks before it has passed an offline test; 0: never asked.
    distrust_window_s: seconds of that. demote_below: a rule evicts no longer where the upper bound of its confirmed rate is below this
    share; 0: never."""

    order: Literal["default", "published"] = "default"
    rungs: tuple[Rung, ...] | None = None
    network_alerts: Literal["page", "evict"] = "page"
    slow_machines: Literal["evict", "prove"] = "evict"
    window_s: float = Field(default=86_400.0, gt=0, le=86_400)
    distrust_evictions: int = Field(default=2, ge=0)
    distrust_window_s: float = Field(default=7 * 86_400.0, gt=0)
    demote_below: float = Field(default=0.5, ge=0, le=1)

    @model_validator(mode="after")
    def _agrees(self) -> LadderConfig:
        if self.rungs is None:
            return self
        if self.order != "default":
            raise ValueError("rungs and order exclude each other: leave one out")
        seen: set[tuple[str, str, bool]] = set()
        for item in self.rungs:
            for trouble in item.on:
                if (item.rung, trouble, item.times is None) in seen:
                    raise ValueError(f'rung "{item.rung}" stands twice for "{trouble}": name it once')
                seen.add((item.rung, trouble, item.times is None))
        return self

    @property
    def steps(self) -> tuple[Rung, ...]:
        """All rungs in order, a person last."""
        known = _ORDERS[self.order] if self.rungs is None else self.rungs
        proves = self.slow_machines == "prove" and not any(item.rung == "diagnose" and "slow" in item.on for item in known)
        return (*((_with_slow(item) if proves else item) for item in known), PERSON)

    def climb(self, trouble: str) -> Sequence[tuple[int, Rung]]:
        """(rank, rung) of those that are for this trouble, from the first to the last. Network alerts that page have a person only."""
        steps = list(enumerate(self.steps, 1))
        if trouble == "network" and self.network_alerts == "page":
            steps = steps[-1:]
        return [(rank, item) for rank, item in steps if trouble in item.on]

    def rank(self, rung: str, trouble: str) -> int:
        """Of a rung for this trouble, as it stands now; 0 where the ladder has none, as of a decision of other settings."""
        return next((rank for rank, item in self.climb(trouble) if item.rung == rung), 0)


def _with_slow(item: Rung) -> Rung:
    """The tests of a job that stands are for a slow machine too."""
    return item.model_copy(update={"on": (*item.on, "slow")}) if item.rung == "diagnose" else item


def read_ladder(values: Any) -> LadderConfig:
    """From a configuration table, or as it is. Raises ConfigError, one line."""
    if isinstance(values, LadderConfig):
        return values
    if not isinstance(values, Mapping):
        raise ConfigError(f"policy.ladder is {values!r}: give a table, such as [policy.ladder]")
    try:
        return LadderConfig.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in ("policy", "ladder", *first["loc"]))
        known = ", ".join(Rung.model_fields if "rungs" in first["loc"] else LadderConfig.model_fields)
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"{where} is not a setting: use one of {known}") from error
        raise ConfigError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from error
