"""The wiring: a configuration becomes a controller, or one clear line."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.app.admission import Admission
from minder.app.build import App, build, build_source
from minder.config import JobConfig, MachineConfig, MetricsConfig, TelemetryConfig
from minder.model.errors import ConfigError, RecoveryError
from minder.model.evidence import Evidence, Verdict
from minder.model.observation import MachineView, Observation, WorkerView
from minder.record.incidents import kinds

DEAD = "http://127.0.0.1:9"


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., JobConfig]:
    def make(**changes: Any) -> JobConfig:
        machines = tuple(MachineConfig(name=f"m{index}", agent=DEAD, launcher=DEAD, rack="r1") for index in range(3))
        plain = JobConfig(name="llm", machines=machines, state_dir=str(tmp_path / "state"), start_deadline_s=0.3)
        return plain.model_copy(update=changes)

    return make


@pytest.fixture
def built(config: Callable[..., JobConfig], monkeypatch: pytest.MonkeyPatch) -> Any:
    """built(**changes of the configuration): an App that is closed at the end; its rendezvous process is never started."""
    from minder.act.controller.recover import RendezvousHost

    monkeypatch.setattr(RendezvousHost, "ensure", classmethod(lambda cls, *unused: cls(*unused)))
    monkeypatch.delenv("MINDER_LEDGER", raising=False)
    made: list[App] = []

    def make(act: bool = False, **changes: Any) -> App:
        made.append(build(config(**changes), act=act))
        return made[-1]

    yield make
    for app in made:
        app.close()


def test_half_of_the_machines_with_launchers_is_refused(config: Callable[..., JobConfig]) -> None:
    machines = (MachineConfig(name="a", agent=DEAD, launcher=DEAD), MachineConfig(name="b", agent=DEAD))
    with pytest.raises(ConfigError, match="some have none"):
        build(config(machines=machines))


def test_prometheus_without_an_address_is_refused(config: Callable[..., JobConfig]) -> None:
    telemetry = TelemetryConfig.model_construct(**{**TelemetryConfig().model_dump(), "source": "prometheus"})
    with pytest.raises(ConfigError, match=r"telemetry\.url"):
        build_source(Admission(config(telemetry=telemetry)))


def ours() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("minder-")}


def names_since(before: set[threading.Thread]) -> set[str]:
    return {thread.name for thread in ours() - before}


@pytest.mark.parametrize("begun", [False, True])
def test_closing_an_app_stops_its_threads_whether_it_was_begun_or_not(built: Any, begun: bool) -> None:
    before = ours()
    app = built()
    assert "minder-scrape" in names_since(before)
    if begun:
        app.fleet.start()
    app.close()
    app.close()
    assert not names_since(before) & {"minder-scrape", "minder-fleet"}


def test_a_recording_that_cannot_be_finished_does_not_keep_the_rest_open(built: Any) -> None:
    before = ours()
    app = built()

    class Full:
        def close(self) -> None:
            raise OSError("no space left")

    app.controller._stages.recorder = Full()
    with pytest.raises(OSError, match="no space"):
        app.close()
    assert "minder-scrape" not in names_since(before)
    app.controller._stages.recorder = None


@pytest.mark.parametrize(("phase", "kept"), [("finished", False), ("failed", False), ("running", True)])
@pytest.mark.lab
def test_the_rendezvous_process_ends_with_the_job_and_outlives_the_controller_of_one_that_goes_on(
    config: Callable[..., JobConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: Any, kept: bool
) -> None:
    from minder.act.recovery.rendezvous import RendezvousHost

    monkeypatch.delenv("MINDER_LEDGER", raising=False)
    app = build(config())
    assert app.recovery is not None
    host = RendezvousHost(tmp_path / "state", "127.0.0.1")
    try:
        app.recovery.prepare()
        assert host.pid() is not None
        app.state.phase = phase
        app.close()
        assert (host.pid() is not None) is kept
    finally:
        host.stop()


def test_a_job_without_launchers_is_only_watched(built: Any) -> None:
    app = built(act=True, machines=tuple(MachineConfig(name=f"m{index}", agent=DEAD) for index in range(3)))
    assert app.recovery is None


def test_machines_that_never_come_are_told_after_the_deadline(built: Any) -> None:
    app = built()
    with pytest.raises(RecoveryError, match="m0 is not ready after 0 s and no standby is"):
        app.begin()


def test_a_ledger_that_names_another_machine_is_one_clear_line(built: Any) -> None:
    first = built()
    placed = {"generation": 1, "rank_machine": {"0": "gone", "1": "m1", "2": "m2"}}
    first.ledger.append(kinds.JOB_REGISTERED, {"machines": ["gone"], "standbys": []}, job="llm")
    first.ledger.append(kinds.GENERATION_STARTED, placed, job="llm", operation_id="start-llm-1")
    app = built()
    with pytest.raises(ConfigError, match=r"gone runs ranks of job llm.*\[\[machines\]\]"):
        app.begin()


def test_the_policy_sees_who_is_dead_who_is_lost_and_what_is_shared(built: Any) -> None:
    app = built()
    app.state.generation, app.state.phase = 2, "running"
    app.state.rank_machine = {0: "m0", 1: "m1", 2: "m2"}
    fine = MachineView("m0", 0.1, 0.0, (WorkerView(0, 1, 0, "running", 2),))
    views = {"m0": fine, "m1": replace(fine, machine="m1"), "m2": replace(fine, machine="m2")}
    app.fleet.views = lambda: views
    context = app.controller._stages.context

    def seen() -> Any:
        return context(app.state, ("s0",), time.time())

    assert (seen().workers_dead, seen().machines_lost) == (False, frozenset())
    assert seen().domains["m0"] == {"rack": "r1"} and seen().standbys_ready == ("s0",) and seen().gpus == 3
    views["m1"] = replace(views["m1"], workers=(WorkerView(0, 1, 1, "exited", 2),))
    assert seen().workers_dead
    views["m1"] = replace(views["m1"], workers=(WorkerView(0, 2, None, "waiting", -1),))
    assert seen().workers_dead, "a fresh process in a dead worker's place runs no rank"
    views["m1"] = replace(fine, machine="m1", workers=(*fine.workers, WorkerView(1, 3, None, "waiting", -1)))
    assert not seen().workers_dead, "a spare slot was never needed"
    views["m2"] = replace(views["m2"], launcher_age_s=None)
    assert seen().machines_lost == {"m2"}
    views["m2"] = replace(views["m2"], launcher_age_s=30.0)
    assert seen().machines_lost == {"m2"}


def test_a_slow_machine_is_worth_a_restart_only_where_little_work_is_lost(built: Any, tmp_path: Path) -> None:
    """A loss of half a percent for a day against an hour of work that no checkpoint holds; then one is saved."""
    from minder.edge.checkpoint.manifest import Manifest, ManifestFile, checkpoint_path, publish

    app = built(act=True, checkpoint_dir=str(tmp_path / "checkpoints"))
    app.state.generation, app.state.phase = 1, "running"
    app.state.rank_machine = {0: "m0", 1: "m1", 2: "m2"}
    app.controller._stages.tracker.steps.step = 3600.0
    steps = Evidence("heartbeat", "m1", metric="step_seconds", observed=1.0, expected=0.995)
    verdict = Verdict(time.time(), "machine", "evict", ("m1",), "slowdown", 1.0, time.time() - 5, (steps,))

    def decide(saved_step: int) -> Any:
        path = checkpoint_path(tmp_path / "checkpoints", saved_step, 1)
        path.mkdir(parents=True)
        publish(Manifest(path, saved_step, 1, 1, 0.0, (ManifestFile("part", 1, "0" * 64),)))
        context = app.controller._stages.context(app.state, ("s0",), time.time())
        return app.controller._stages.policy.decide([verdict], app.ledger.history("llm", time.time()), context)[0]

    costly, cheap = decide(100), decide(3599)
    assert (costly.action, costly.reason) == ("page", "below_break_even")
    assert costly.price.acting_gpu_s == 3 * (10 + 3500)
    assert cheap.action == "evict" and cheap.price.acting_gpu_s == 3 * (10 + 1)


@pytest.mark.parametrize(("total_steps", "action"), [(None, "evict"), (100_000, "evict"), (1010, "page"), (900, "evict")])
def test_a_job_that_is_nearly_done_is_not_restarted_for_its_speed(built: Any, total_steps: int | None, action: str) -> None:
    """At step 1000 of a job that runs at half its speed; 900 is a number that the job has disproved."""
    app = built(act=True, total_steps=total_steps, policy={"assumed_unsaved_s": 0.0})
    app.state.generation, app.state.phase = 1, "running"
    app.state.rank_machine = {0: "m0", 1: "m1", 2: "m2"}
    now_s = time.time()
    for step in range(980, 1001):
        worker = WorkerView(0, 1, 0, "running", 1, step=step, step_time_s=now_s - 1000 + step)
        app.controller._stages.tracker.update(Observation(now_s, None, (), None, {"m0": MachineView("m0", 0.1, 0.1, (worker,))}))
    steps = Evidence("heartbeat", "m1", metric="step_seconds", observed=1.0, expected=0.5)
    verdict = Verdict(now_s, "machine", "evict", ("m1",), "slowdown", 1.0, now_s - 5, (steps,))
    context = replace(app.controller._stages.context(app.state, ("s0",), now_s), speed_lost_share=0.5)
    (decision,) = app.controller._stages.policy.decide([verdict], app.ledger.history("llm", now_s), context)
    assert decision.action == action
    if action == "page":
        assert decision.reason == "below_break_even" and decision.price.waiting_gpu_s == pytest.approx(3 * 0.5 * 10 * 1.0)


def test_a_decision_lists_every_job_that_would_die(built: Any) -> None:
    """Two jobs share m1: their names come from its agent, and the policy stops there unless it is allowed."""
    app = built(act=True)
    app.state.generation, app.state.phase = 1, "running"
    app.state.rank_machine = {0: "m0", 1: "m1", 2: "m2"}
    for index in range(3):
        running = WorkerView(0, 1, index, "running", 1)
        app.fleet._contacts[f"m{index}"].workers = (running,)
        app.fleet._contacts[f"m{index}"].jobs = ("llm",)
    app.fleet._contacts["m1"].jobs = ("llm", "other-team")
    context = app.controller._stages.context(app.state, ("s0",), time.time())
    assert context.other_jobs == {"m1": ("other-team",)}
    verdict = Verdict(time.time(), "machine", "evict", ("m1",), "explicit", 0.97, time.time() - 5)
    (decision,) = app.controller._stages.policy.decide([verdict], app.ledger.history("llm", time.time()), context)
    assert (decision.action, decision.reason) == ("page", "shared_machine")
    assert decision.jobs_affected == ("llm", "other-team")


def test_a_watched_job_goes_by_two_names_and_is_no_neighbour_of_its_own(built: Any) -> None:
    app = built(machines=tuple(MachineConfig(name=f"m{index}", agent=DEAD) for index in range(3)))
    for index in range(3):
        app.fleet._contacts[f"m{index}"].workers = (WorkerView(-1, 10 + index, index, "running", 0, job="8f3a"),)
        app.fleet._contacts[f"m{index}"].jobs = ("8f3a",)
    app.fleet._contacts["m2"].jobs = ("8f3a", "other-team")
    app.controller._hearing.hear(time.time())
    context = app.controller._stages.context(app.state, (), time.time())
    assert context.other_jobs == {"m2": ("other-team",)} and not context.workers_dead


def test_the_controllers_metrics_are_off_unless_the_configuration_opens_an_address(built: Any) -> None:
    assert built().export is None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    app = built(act=True, metrics=MetricsConfig(listen=f"127.0.0.1:{port}"))
    app.exporter = app.export()
    with httpx.Client(trust_env=False, timeout=20.0) as client:
        text = client.get(f"http://127.0.0.1:{port}/metrics").text
    assert 'minder_controller_dry_run{training_job="llm"} 0.0' in text and 'agent_age_seconds{machine="m1",training_job="llm"} +Inf' in text
    app.close()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_ranks_that_keep_checkpoints_in_memory_learn_the_layout_and_their_own_rack(built: Any) -> None:
    machines = tuple(MachineConfig(name=name, agent=DEAD, launcher=DEAD, rack=f"r-{name}") for name in "abcd")
    app = built(machines=machines, checkpoints="memory", ranks_per_machine=2, parallelism={"tensor": 2})
    settings = app.recovery._settings
    parallelism = json.loads(settings.environment["MINDER_PARALLELISM"])
    assert (parallelism["tensor"], parallelism["data"]) == (2, 4)
    assert json.loads(settings.machine_environment["b"]["MINDER_DOMAIN"]) == {"rack": "r-b"}
