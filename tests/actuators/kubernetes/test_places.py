"""From a job's pods to machines with addresses: who runs ranks, who stands by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minder.app.engine import open_engine, place_machines, return_machine
from minder.config import JobConfig, load_config
from minder.model.errors import ActuatorError, ConfigError
from minder.record.incidents import Ledger

ENGINE = '[engine]\nkind = "kubernetes"\njob = "llm"\nworkload = "PyTorchJob"\nnamespace = "training"\n'
URLS = 'agent = "http://{node_ip}:9401"\nlauncher = "http://{pod_ip}:9402"\n'


def load(folder: Path, text: str, **flags: Any) -> JobConfig:
    (folder / "job.toml").write_text('name = "llm"\n' + text)
    return load_config(folder / "job.toml", **flags)


def test_pods_are_the_machines_and_what_is_more_than_asked_stands_by(cluster: Any, tmp_path: Path) -> None:
    found = place_machines(load(tmp_path, ENGINE + URLS + "machines = 2\n"), asked=cluster.api)
    assert {machine.name: machine.standby for machine in found.machines} == {"n1": False, "n2": False, "n3": True}
    assert (found.machines[1].agent, found.machines[1].launcher) == ("http://10.0.0.2:9401", "http://10.1.0.2:9402")
    assert found.topology().rank_machine == {0: "n1", 1: "n2"}


def test_a_watched_job_may_come_to_other_nodes(cluster: Any, tmp_path: Path) -> None:
    text = ENGINE + 'agent = "http://{node}:9401"\nnodes = "nvidia.com/gpu.product=H100"\n'
    found = place_machines(load(tmp_path, text, only_watch=True), only_watch=True, asked=cluster.api)
    assert {machine.name: machine.standby for machine in found.machines} == {
        "n1": False, "n2": False, "n3": False, "n4": True, "n5": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (URLS + "machines = 9\n", ConfigError, r"engine\.machines is 9, but the job has 3 machines"),
        ("", ConfigError, r"node n1 of the job has no address.*engine\.agent"),
        (URLS + "[parallelism]\ntensor = 2\n", ConfigError, "3 machines of the job run ranks"),
    ],
)
def test_what_does_not_fit_is_one_clear_line(cluster: Any, tmp_path: Path, text: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        place_machines(load(tmp_path, ENGINE + text), asked=cluster.api)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('agent = "http://one:1"\n', r"engine\.agent.*same for every node"),
        ("spares = 1\n", r"engine\.spares"),
        ("max_held = 0\n", r"engine\.max_held"),
        ('namespace = "No Such"\n', r"engine\.namespace"),
    ],
)
def test_a_wrong_engine_table_names_its_key(tmp_path: Path, text: str, said: str) -> None:
    table = "".join(line for line in ENGINE.splitlines(True) if "namespace" not in line or "namespace" not in text)
    with pytest.raises(ConfigError, match=said):
        load(tmp_path, table + text)


def test_a_job_that_waits_or_has_two_pods_on_a_node_is_told(cluster: Any, tmp_path: Path) -> None:
    config = load(tmp_path, ENGINE + URLS)
    pods = "/api/v1/namespaces/training/pods"
    second = next(item for item in cluster.api.items(pods) if item["metadata"]["name"] == "llm-1")
    cluster.api.put(pods, {**second, "spec": {**second["spec"], "nodeName": "n1"}})
    with pytest.raises(ActuatorError, match="two pods on n1"):
        place_machines(config, asked=cluster.api)
    cluster.api.put(pods, {**second, "spec": {**second["spec"], "nodeName": None}})
    with pytest.raises(ActuatorError, match="llm-1 has no node yet"):
        place_machines(config, asked=cluster.api)


def test_a_machine_is_returned_by_the_ledger_that_took_it(cluster: Any, tmp_path: Path) -> None:
    config = load(tmp_path, ENGINE + URLS)
    engine = open_engine(config, asked=cluster.api)
    assert engine is not None and engine.cordon("n2", "evict-0a", "stall").outcome == "done"
    with Ledger(tmp_path / "ledger.db") as ledger:
        with pytest.raises(ActuatorError, match="does not know"):
            return_machine(config, ledger, "n2", asked=cluster.api)
        payload = {"action": "drain", "machines": ["n2"], "engine": "kubernetes", "owner": "evict-0a", "why": ""}
        ledger.intend("evict-0a/drain/n2", payload, job="llm")
        assert return_machine(config, ledger, "n2", asked=cluster.api).outcome == "done"
    assert not cluster.nodes.show("n2").unschedulable
