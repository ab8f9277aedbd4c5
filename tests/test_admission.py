"""What a machine is given that joins a running job, in the process that takes it in and in the next one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.app.admission import registration, with_joined
from minder.app.build import App, build
from minder.config import JobConfig, MachineConfig
from minder.ingest.sources.recording import read_recording
from minder.model.decision import ActionResult
from minder.model.observation import MachineView, WorkerView
from minder.model.telemetry import Sample
from minder.record.incidents import kinds
from minder.record.incidents.joins import Join
from minder.wire.tokens import write_token

NEW = Join("join-1", "n9", "http://127.0.0.1:8", "http://127.0.0.1:9", rack="r7", block="b2")


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    write_token(tmp_path / "token")
    machines = tuple(
        MachineConfig(name=f"m{n}", agent=f"http://127.0.0.2:{n + 1}/", launcher=f"http://127.0.0.2:{n + 11}", rack=f"r{n}")
        for n in range(4)
    )
    more: dict[str, Any] = {"record_dir": str(tmp_path / "recording"), "parallelism": {"pipeline": 2, "data": 2}}
    return JobConfig(
        name="llm", machines=machines, state_dir=str(tmp_path / "state"), agent_token_file=str(tmp_path / "token"),
        policy={"breaker_share": 0.5}, **more,
    )  # fmt: skip


@pytest.fixture
def built(config: JobConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., App]]:
    monkeypatch.delenv("MINDER_LEDGER", raising=False)
    made: list[App] = []

    def make(**changes: Any) -> App:
        made.append(build(config.model_copy(update=changes)))
        return made[-1]

    yield make
    for app in made:
        app.close()


def test_it_is_polled_scraped_aligned_recorded_and_placed_like_the_others(built: Callable[..., App], config: JobConfig) -> None:
    app = built()
    stages: Any = app.controller._stages
    admits = stages.admits
    token = config.endpoints()[0].agent
    assert token is not None and admits.endpoints(NEW).launcher.token == token.token, "the job's own tokens"
    admits.admit(NEW)
    assert stages.source._source._targets[-1].machine == "n9"
    assert stages.context(app.state, (), time.time()).domains["n9"] == {"rack": "r7", "block": "b2"}
    now_s = time.time()
    for age in (3.0, 2.0, 1.0):
        stages.windows.push([Sample(now_s - age, name, {"cpu_usage_ratio": 0.5}) for name in ("m0", "n9")])
    window = stages.windows.pop(now_s)
    assert window.machines[-1] == "n9" and window.present_TM[:, -1].any()
    stages.recorder.note_ranks(1, {0: "n9", 1: "m1", 2: "m2", 3: "m3"})
    stages.recorder.append_samples([Sample(now_s, "n9", {"cpu_usage_ratio": 0.5})])
    app.close()
    assert "n9" in read_recording(str(config.record_dir)).job.standbys


def test_the_next_controller_has_it_in_its_configuration_until_the_run_is_over(built: Callable[..., App], config: JobConfig) -> None:
    first = built()
    ledger = first.ledger
    ledger.append(kinds.JOB_REGISTERED, registration(config, 2), job="llm")
    placed = {"generation": 1, "rank_machine": {"0": "n9", "1": "m1", "2": "m2", "3": "m3"}}
    ledger.append(kinds.STANDBY_ADDED, {"machine": "n9", "agent": NEW.agent, "launcher": NEW.launcher}, job="llm", operation_id="join-1")
    assert with_joined(config, ledger.events()) == config, "ordered, and not taken in yet"
    ledger.intend("join-1", {"action": "join", "machines": ["n9"]}, job="llm")
    ledger.complete("join-1", ActionResult("join-1", 1.0, "done", "a standby of llm"))
    ledger.append(kinds.GENERATION_STARTED, placed, job="llm", operation_id="start-llm-1")
    again = built()
    assert again.fleet.machines[-1] == "n9" and again.config.machines[-1].standby
    ledger.append(kinds.JOB_ENDED, {"outcome": "finished"}, job="llm")
    assert built(record_dir=None).fleet.machines == ("m0", "m1", "m2", "m3")


def test_one_that_the_configuration_names_by_now_is_as_it_says(config: JobConfig, built: Callable[..., App]) -> None:
    ledger = built().ledger
    ledger.append(kinds.STANDBY_ADDED, {"machine": "m3", "agent": "http://old:1", "launcher": "http://old:2"}, job="llm", operation_id="j")
    ledger.intend("j", {"action": "join", "machines": ["m3"]}, job="llm")
    ledger.complete("j", ActionResult("j", 1.0, "done"))
    assert with_joined(config, ledger.events()) == config


def test_a_run_is_registered_with_addresses_and_its_largest_group(config: JobConfig) -> None:
    found = registration(config, 2)
    assert found["agents"]["m0"] == "http://127.0.0.2:1" and found["launchers"]["m3"] == "http://127.0.0.2:14"
    assert (found["gpus"], found["largest_group"]) == (4, 2)


def test_the_policy_sees_the_largest_group_who_answers_and_what_a_return_has_settled(built: Callable[..., App]) -> None:
    app = built()
    views = {
        "m0": MachineView("m0", 0.1, None, (WorkerView(0, 1, 0, "running", 0),)),
        "m1": MachineView("m1", 40.0, 0.2),
        "m2": MachineView("m2", 40.0, 5.0),
        "m3": MachineView("m3", None, None),
    }
    app.fleet.views = lambda: views  # type: ignore[method-assign]
    now_s = time.time()
    verdict = {"kind": "machine", "tier": "evict", "machines": ["m2"]}
    app.ledger.append(kinds.VERDICT, verdict, job="llm", time_s=now_s - 60)
    found = app.controller._stages.context(app.state, (), now_s)
    assert (found.largest_group, found.answering) == (2, frozenset({"m0", "m1"}))
    assert set(found.suspects) == {"m2"}
    app.state.returned_s["m2"] = now_s - 30
    assert app.controller._stages.context(app.state, (), now_s).suspects == {}
    app.ledger.append(kinds.VERDICT, verdict, job="llm", time_s=now_s - 10)
    assert set(app.controller._stages.context(app.state, (), now_s).suspects) == {"m2"}, "accused anew"
