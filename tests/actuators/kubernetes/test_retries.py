"""Whoever else would restart the job is named with the setting that ends it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from minder.act.actuators.kubernetes.retries import rival_of
from tests.fakes.kubernetes_site_fake import job_object

NEVER = {"spec": {"restartPolicy": "Never"}}
ALL = {"spec": {"restartPolicy": "Never", "tolerations": [{"operator": "Exists"}]}}
COUNTS = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]}


@pytest.mark.parametrize("kind", ["Job", "JobSet", "PyTorchJob"])
def test_a_job_with_one_owner_of_its_restarts(kind: str) -> None:
    assert rival_of(kind, job_object(kind, "llm")) == ""


def test_a_job_is_taken_with_and_without_what_newer_servers_add() -> None:
    """1.29 and newer put `podReplacementPolicy: Failed` beside a podFailurePolicy, which is demanded; older ones know no such field."""
    found = job_object("Job", "llm")
    assert found["spec"]["podReplacementPolicy"] == "Failed" and rival_of("Job", found) == ""
    del found["spec"]["podReplacementPolicy"]
    assert rival_of("Job", found) == ""


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        ("Job", {"backoffLimit": 3}, r"the Job controller retries.*backoffLimit: 0 \(it is 3\)"),
        ("Job", {"backoffLimitPerIndex": 1}, "retries each index"),
        ("Job", {"completionMode": "NonIndexed"}, "not Indexed"),
        ("Job", {"podFailurePolicy": COUNTS}, "DisruptionTarget"),
        ("Job", {"podFailurePolicy": None}, "DisruptionTarget"),
        ("Job", {"template": {"spec": {"restartPolicy": "OnFailure"}}}, "the kubelet restarts"),
        ("Job", {"template": ALL}, "tolerate every taint"),
        ("JobSet", {"failurePolicy": {"maxRestarts": 5}}, r"JobSet recreates.*maxRestarts: 0 \(it is 5\)"),
        ("JobSet", {"replicatedJobs": [{"name": "w", "template": {"spec": {}}}]}, r"JobSet llm's Job w is not Indexed"),
        ("JobSet", {"replicatedJobs": []}, "no replicatedJobs"),
        ("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"template": NEVER}}}, r"the kubelet restarts.*Worker.restartPolicy: ExitCode"),
        ("PyTorchJob", {"pytorchReplicaSpecs": {"Master": {"restartPolicy": "Never"}}}, "an eviction would end"),
        ("PyTorchJob", {"runPolicy": {"backoffLimit": 2}}, "backoffLimit"),
        ("PyTorchJob", {"elasticPolicy": {"maxRestarts": 2}}, "torchrun restarts"),
        ("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"restartPolicy": "ExitCode", "template": ALL}}}, "tolerate every taint"),
    ],
)
def test_a_rival_is_named(kind: str, spec: dict[str, Any], said: str) -> None:
    assert re.search(said, rival_of(kind, job_object(kind, "llm", **spec)))


def test_kueue_is_a_rival_until_the_site_says_that_it_only_admits() -> None:
    found = job_object("Job", "llm")
    found["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    assert "Kueue admits Job llm" in rival_of("Job", found)
    assert rival_of("Job", found, "admission") == ""
