"""The files for a Kubernetes site: what they run exists, what they ask for is what the engine demands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minder.act.actuators.kubernetes.retries import rival_of
from minder.cli import main
from minder.config import load_config

FILES = Path(__file__).resolve().parents[3] / "serve/deploy/kubernetes"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FILES / name).read_text()))


def test_the_job_has_one_owner_of_its_restarts() -> None:
    (job,) = documents("job.yaml")
    assert rival_of("Job", job) == ""


def test_the_configuration_fits_the_job(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text((FILES / "job.toml").read_text())
    (tmp_path / "agent-token").write_text("a-token-of-the-tests")
    (tmp_path / "agent-token").chmod(0o600)
    config = load_config(tmp_path / "job.toml", only_watch=True)
    (job,) = documents("job.yaml")
    assert config.engine is not None and config.engine.kind == "kubernetes"
    assert (config.engine.job, config.engine.namespace) == (job["metadata"]["name"], job["metadata"]["namespace"])
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "MINDER_JOB", "value": config.engine.job}]


def test_what_the_containers_run_are_commands_of_minder(capsys: pytest.CaptureFixture[str]) -> None:
    pods = [
        item["spec"]["template"]["spec"]
        for name in ("agents.yaml", "service.yaml")
        for item in documents(name)
        if item["kind"] in ("DaemonSet", "Deployment")
    ]
    containers = [container for pod in pods for container in pod["containers"]]
    assert [container["args"][0] for container in containers] == ["agent", "watch", "serve"]
    for container in containers:
        assert main([container["args"][0], "--help"]) == 0
        told = capsys.readouterr().out
        assert [word for word in container["args"] if word.startswith("--") and word not in told] == []
        assert container["securityContext"]["readOnlyRootFilesystem"] and container["securityContext"]["capabilities"]["drop"] == ["ALL"]
        assert "--act" not in container["args"], "a dry run unless the site says otherwise"


def test_no_right_to_delete_or_to_read_secrets() -> None:
    rules = [rule for item in documents("rbac.yaml") if item["kind"] in ("Role", "ClusterRole") for rule in item["rules"]]
    verbs = {verb for rule in rules for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch", "patch", "create"}
    assert "secrets" not in {name for rule in rules for name in rule["resources"]}
