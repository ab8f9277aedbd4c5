"""From an [engine] table to machines, and back: who runs ranks, who stands by, and how a machine is returned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.act.actuators.slurm.nodes import SlurmNodes
from minder.app.engine import place_machines, return_machine
from minder.config import JobConfig, load_config
from minder.model.errors import ActuatorError, ConfigError, EngineUnavailableError
from minder.record.incidents import Ledger, kinds
from tests.fakes.slurm_fake import FakeJob, FakeSlurm

HEAD = 'name = "llm"\n'
ENGINE = '[engine]\nkind = "slurm"\njob = 7\n'
URLS = 'agent = "http://{node}:9401"\nlauncher = "http://{node}:9402"\n'


@pytest.fixture
def slurm() -> FakeSlurm:
    made = FakeSlurm(["n1", "n2", "n3", "n4", "n5"])
    made.jobs[7] = FakeJob(["n1", "n2", "n3", "n4"])
    return made


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., JobConfig]:
    def make(text: str, **flags: Any) -> JobConfig:
        (tmp_path / "job.toml").write_text(text)
        return load_config(tmp_path / "job.toml", **flags)

    return make


def placed(config: JobConfig) -> dict[str, bool]:
    return {machine.name: machine.standby for machine in config.machines}


def test_the_allocation_is_the_job_and_what_is_more_than_asked_stands_by(config: Any, slurm: FakeSlurm) -> None:
    found = place_machines(config(HEAD + ENGINE + "machines = 3\n" + URLS), asked=slurm)
    assert placed(found) == {"n1": False, "n2": False, "n3": False, "n4": True}
    assert (found.machines[1].agent, found.machines[1].launcher) == ("http://n2:9401", "http://n2:9402")
    assert found.topology().rank_machine == {0: "n1", 1: "n2", 2: "n3"}
    assert all(not standby for standby in placed(place_machines(config(HEAD + ENGINE + URLS), asked=slurm)).values())


def test_an_allocation_that_lost_a_node_still_holds_a_job_that_may_go_on_with_fewer(config: Any, slurm: FakeSlurm) -> None:
    """As a controller finds it that is started again after an eviction without a standby, and `release`."""
    text = HEAD + "min_machines = LEAST\n[parallelism]\ndata = 5\n" + ENGINE + "machines = 5\n" + URLS
    found = place_machines(config(text.replace("LEAST", "3")), asked=slurm)
    assert list(placed(found).values()) == [False] * 4 and found.topology().parallelism.data == 4
    with pytest.raises(ConfigError, match=r"engine\.machines is 5, but Slurm job 7 has 4 nodes"):
        place_machines(config(text.replace("LEAST", "5")), asked=slurm)


def test_machines_by_name_keep_their_addresses_and_only_those_of_the_allocation_run(config: Any, slurm: FakeSlurm) -> None:
    named = "".join(f'[[machines]]\nname = "n{n}"\nagent = "http://10.0.0.{n}:1"\nrack = "r{n}"\n' for n in (5, 4, 3, 2, 1))
    found = place_machines(config(HEAD + ENGINE + named), asked=slurm)
    assert list(placed(found)) == ["n1", "n2", "n3", "n4"]
    assert found.machines[2].agent == "http://10.0.0.3:1" and found.machines[2].rack == "r3"


def test_a_watched_job_may_come_to_other_nodes(config: Any, slurm: FakeSlurm) -> None:
    found = place_machines(config(HEAD + ENGINE + URLS + 'nodes = "n[1-5]"\n', only_watch=True), only_watch=True, asked=slurm)
    assert placed(found) == {"n1": False, "n2": False, "n3": False, "n4": False, "n5": True}
    assert {machine.launcher for machine in found.machines} == {None}


def test_the_job_id_comes_from_the_allocation_that_we_run_in(config: Any, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    text = HEAD + '[engine]\nkind = "slurm"\n' + URLS
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(ConfigError, match=r"engine\.job is missing"):
        place_machines(config(text), asked=slurm)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert len(place_machines(config(text), asked=slurm).machines) == 4


def test_a_controller_inside_the_allocation_knows_where_the_ranks_meet(
    config: Any, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostbyname", lambda name: {"n1": "10.0.0.1"}[name])
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    assert place_machines(config(HEAD + ENGINE + URLS), asked=slurm).rendezvous_address == "10.0.0.1"
    said = 'rendezvous_address = "10.9.9.9"\n'
    assert place_machines(config(HEAD + said + ENGINE + URLS), asked=slurm).rendezvous_address == "10.9.9.9"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ENGINE, r"node n1 of the Slurm job has no address.*engine\.agent"),
        (ENGINE + "machines = 9\n" + URLS, r"engine\.machines is 9, but Slurm job 7 has 4 nodes"),
        (ENGINE + URLS + "[parallelism]\ntensor = 3\n", r"4 nodes of Slurm job 7 run ranks"),
    ],
)
def test_what_does_not_fit_the_allocation_is_one_clear_line(config: Any, slurm: FakeSlurm, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        place_machines(config(HEAD + text), asked=slurm)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[engine]\nkind = "pbs"\n', r"engine\.kind"),
        ('[engine]\nkind = "slurm"\nagent = "http://one:1"\n', r"engine\.agent.*same for every node"),
        ('[engine]\nkind = "slurm"\nspares = 1\n', r"engine\.spares"),
        ('[engine]\nkind = "slurm"\nnodes = "n1; reboot"\n', r"engine\.nodes"),
    ],
)
def test_a_wrong_engine_table_names_its_key(config: Any, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(HEAD + text)


def test_a_configuration_without_an_engine_stays_as_it_is(config: Any) -> None:
    plain = config(HEAD + '[[machines]]\nname = "m1"\n')
    assert place_machines(plain) is plain
    with pytest.raises(ConfigError, match="a job needs at least one machine"):
        config(HEAD)


def test_a_job_that_waits_or_is_over_is_told(config: Any, slurm: FakeSlurm) -> None:
    slurm.jobs[7].state, slurm.jobs[7].held = "PENDING", True
    with pytest.raises(ConfigError, match="waits for its nodes"):
        place_machines(config(HEAD + ENGINE + URLS), asked=slurm)
    slurm.jobs[7].state = "COMPLETED"
    with pytest.raises(ConfigError, match=r"is over \(COMPLETED\)"):
        place_machines(config(HEAD + ENGINE + URLS), asked=slurm)


@pytest.fixture
def drained(slurm: FakeSlurm, tmp_path: Path) -> Ledger:
    """n2 was drained by an eviction of this ledger."""
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.intend(
        "evict-0a/drain/n2", {"action": "drain", "machines": ["n2"], "engine": "slurm", "owner": "evict-0a", "why": ""}, job="llm"
    )
    SlurmNodes(slurm, lambda: 1.0).drain("n2", "evict-0a", "stall")
    return ledger


def test_a_machine_is_tested_then_returned(config: Any, slurm: FakeSlurm, drained: Ledger, tmp_path: Path) -> None:
    tested = config(HEAD + ENGINE + f'retest = ["touch", "{tmp_path}/tested-{{node}}"]\n')
    assert return_machine(tested, drained, "n2", asked=slurm).outcome == "done"
    assert (tmp_path / "tested-n2").exists() and slurm.nodes["n2"].states == set()
    assert return_machine(tested, drained, "n2", asked=slurm).outcome == "already_done"
    assert [event.operation_id for event in drained.events(kinds=[kinds.RESULT])] == ["return-n2-1", "return-n2-2"]


@pytest.mark.parametrize(
    ("retest", "said"), [('["sh", "-c", "echo HBM bad; exit 3"]', "status 3: HBM bad"), ('["/no/such"]', "No such file")]
)
def test_a_machine_that_fails_its_test_stays_out(config: Any, slurm: FakeSlurm, drained: Ledger, retest: str, said: str) -> None:
    with pytest.raises(ActuatorError, match=f"n2 stays out: .*{said}"):
        return_machine(config(HEAD + ENGINE + f"retest = {retest}\n"), drained, "n2", asked=slurm)
    assert slurm.nodes["n2"].states == {"DRAIN"} and drained.events(kinds=[kinds.RESULT]) == []


def test_what_a_person_drained_is_not_returned(config: Any, slurm: FakeSlurm, drained: Ledger) -> None:
    slurm.nodes["n3"].states, slurm.nodes["n3"].reason = {"DRAIN"}, "minder, do not touch: Jo"
    with pytest.raises(ActuatorError, match="not ours to undo"):
        return_machine(config(HEAD + ENGINE), drained, "n3", asked=slurm)


def test_a_return_that_slurm_did_not_answer_is_finished_by_the_next(config: Any, slurm: FakeSlurm, drained: Ledger) -> None:
    slurm.silent = 1
    with pytest.raises(EngineUnavailableError):
        return_machine(config(HEAD + ENGINE), drained, "n2", asked=slurm)
    assert return_machine(config(HEAD + ENGINE), drained, "n2", asked=slurm).operation_id == "return-n2-1"
