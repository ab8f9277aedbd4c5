"""The service in this process, on a ledger with a past: a job, one incident that was seen to its end, one that is open."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.model.clock import FakeClock
from minder.model.decision import ActionResult, Decision, Price
from minder.model.evidence import Evidence, Verdict
from minder.record.incidents import Ledger, kinds
from minder.record.store.tokens import TokenRecord, new_id
from serve.app import build_app
from serve.settings import Limits, Settings
from serve.state import Service, open_service

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

As = Callable[..., dict[str, str]]
NOW_S = 1_700_000_000.0


def verdict_of(machine: str, time_s: float) -> Verdict:
    return Verdict(
        time_s=time_s,
        kind="machine",
        tier="evict",
        machines=(machine,),
        cause="stall",
        confidence=0.98,
        since_s=time_s - 8.0,
        evidence=(Evidence("telemetry", machine, metric="cpu_usage_ratio", observed=0.01, expected=0.93, since_s=time_s - 8.0),),
        against=(Evidence("signals", machine, "its agent answers"),),
    )


def write_past(ledger: Ledger, job: str = "llm", begin_s: float = NOW_S - 1000.0) -> str:
    """A hang of m2 that was evicted and recovered from, as a controller leaves it; returns the incident."""
    verdict = verdict_of("m2", begin_s + 110.0)
    decision = Decision(
        operation_id=f"evict-{job}",
        time_s=begin_s + 111.0,
        action="evict",
        machines=("m2",),
        reason="act",
        detail="every stage passed: evict",
        verdict=verdict,
        price=Price(100.0, 2000.0),
        replacements=("s1",),
        jobs_affected=(job,),
        stages=("tier: pass",),
    )
    at = {"job": job}
    registered = {"machines": ["m1", "m2"], "standbys": ["s1"], "gpus": 4}
    ledger.append(kinds.JOB_REGISTERED, registered, time_s=begin_s, **at)
    first = {"generation": 1, "rank_machine": {"0": "m1", "1": "m2"}}
    ledger.append(kinds.GENERATION_STARTED, first, time_s=begin_s + 1.0, **at)
    ledger.append(kinds.FIRST_STEP, {"step": 1, "generation": 1}, time_s=begin_s + 5.0, **at)
    name = ledger.open_incident(verdict, job=job, time_s=begin_s + 110.0)
    ledger.append(kinds.DECISION, decision, incident=name, operation_id=f"evict-{job}", time_s=begin_s + 111.0, **at)
    ledger.append(
        kinds.EVIDENCE, {"machine": "m2", "what": "stacks", "data": ["in all_reduce"]}, incident=name, time_s=begin_s + 112.0, **at
    )
    ledger.intend(f"evict-{job}", decision, incident=name, time_s=begin_s + 113.0, **at)
    ledger.append(kinds.BARRED, {"machine": "m2", "reason": "evicted"}, incident=name, time_s=begin_s + 113.5, **at)
    ledger.complete(f"evict-{job}", ActionResult(f"evict-{job}", begin_s + 114.0, "done", "workers ended"))
    second = {"generation": 2, "rank_machine": {"0": "m1", "1": "s1"}}
    ledger.append(kinds.GENERATION_STARTED, second, incident=name, time_s=begin_s + 116.0, **at)
    step = {"step": 41, "generation": 2, "resumed_from": 40, "last_step": 41, "gpus": 4, "step_seconds": 0.5}
    ledger.append(kinds.FIRST_STEP, step, incident=name, time_s=begin_s + 118.0, **at)
    return name


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_S)


@pytest.fixture
def limits() -> Limits:
    """What the tests of a file want to be otherwise."""
    return Limits()


@pytest.fixture(scope="session")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledger's file, written once."""
    path = tmp_path_factory.mktemp("past") / "ledger.db"
    with Ledger(path, clock=FakeClock(NOW_S)) as opened:
        write_past(opened)
        opened.open_incident(verdict_of("m1", NOW_S - 50.0), job="llm", time_s=NOW_S - 50.0)
    return path


@pytest.fixture
def ledger(past: Path, tmp_path: Path, clock: FakeClock) -> Iterator[Ledger]:
    with Ledger(shutil.copy(past, tmp_path / "ledger.db"), clock=clock) as opened:
        yield opened


@pytest.fixture(scope="module")
def standing(past: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service on the past for tests that only read: nothing is written to its ledger."""
    path = shutil.copy(past, tmp_path_factory.mktemp("standing") / "ledger.db")
    opened = open_service(Settings(str(path)), FakeClock(NOW_S))
    yield opened
    opened.close()


@pytest.fixture
def service(ledger: Ledger, clock: FakeClock, limits: Limits) -> Iterator[Service]:
    opened = open_service(Settings(ledger.location, limits=limits), clock)
    yield opened
    opened.close()


@pytest.fixture
def as_(service: Service) -> As:
    """as_("viewer", jobs=("llm",)) -> the headers of a caller with such a token."""

    def make(role: str = "viewer", **fields: Any) -> dict[str, str]:
        name = fields.pop("name", f"{role}-{new_id()}")
        record = TokenRecord(new_id(), name, role, NOW_S, "root", **fields)
        return {"Authorization": f"Bearer {service.tokens.create(record)}"}

    return make


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with TestClient(build_app(service), raise_server_exceptions=False) as client:
        yield client
