from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minder.act.policy import PolicyConfig, PolicyContext
from minder.act.policy.case import Case
from minder.model.evidence import Verdict
from minder.model.history import History, PastEviction
from minder.model.observation import JobView

NOW_S = 10_000.0


@pytest.fixture
def job() -> JobView:
    """Eight machines, two racks."""
    return JobView(
        name="llm",
        generation=1,
        phase="running",
        machines=tuple(f"m{n}" for n in range(8)),
        standbys=("s0", "s1", "s2"),
        barred=(),
        rank_machine={},
        quiet_until_s=0.0,
        generation_start_s=0.0,
    )


@pytest.fixture
def context(job: JobView) -> PolicyContext:
    return PolicyContext(now_s=NOW_S, job=job, standbys_ready=("s0", "s1", "s2"), gpus=8, since_checkpoint_s=20.0, expected_restart_s=10.0)


@pytest.fixture
def live() -> PolicyConfig:
    """Evictions turned on."""
    return PolicyConfig(dry_run=False, breaker_share=0.5)


@pytest.fixture
def accuse() -> Callable[..., Verdict]:
    """accuse("m1", cause="slowdown", ...)"""

    def make(*machines: str, **changes: Any) -> Verdict:
        plain = Verdict(NOW_S, "machine", "evict", machines, "stall", 0.95, NOW_S - 10)
        return replace(plain, **{"kind": "group" if len(machines) > 1 else "machine", **changes})

    return make


@pytest.fixture
def evicted() -> Callable[..., PastEviction]:
    """evicted("m1", ago_s=30)"""

    def make(*machines: str, ago_s: float = 30.0, **changes: Any) -> PastEviction:
        plain = PastEviction(NOW_S - ago_s, "llm", machines, "evict", f"evict-{'-'.join(machines)}-{ago_s}", True)
        return replace(plain, **changes)

    return make


@pytest.fixture
def case(context: PolicyContext, live: PolicyConfig, accuse: Callable[..., Verdict]) -> Callable[..., Case]:
    """case(verdict, context changes..., history=..., config=...)"""

    def make(verdict: Verdict | None = None, **changes: Any) -> Case:
        own = {name: changes.pop(name) for name in list(changes) if name in ("planned", "taken", "suspects", "preferred", "action")}
        history, config = changes.pop("history", History()), changes.pop("config", live)
        whole = Case(verdict or accuse("m1"), "evict", "evict-now", history, replace(context, **changes), config)
        whole = replace(whole, machines=whole.verdict.machines)
        return replace(whole, **own)

    return make
