"""A Kubernetes in memory, with a job on it."""

from __future__ import annotations

from typing import Any

import pytest

from minder.act.actuators.kubernetes.config import KubernetesConfig
from minder.act.actuators.kubernetes.engine import KubernetesEngine
from minder.act.actuators.kubernetes.nodes import KubernetesNodes
from tests.fakes.kubernetes_site_fake import FakeSite

OPERATION = "evict-0123456789ab"


class Cluster:
    """Five nodes, a job of three pods on the first of them, and a person with kubectl."""

    def __init__(self, **settings: Any) -> None:
        self.site = FakeSite()
        self.api = self.site.api
        self.site.submit(3, kind=settings.get("workload", "PyTorchJob"))
        self.confirmed = 0
        self.engine = self.new_engine(**settings)

    @property
    def nodes(self) -> KubernetesNodes:
        return self.engine.nodes

    def new_engine(self, **settings: Any) -> KubernetesEngine:
        """Another controller of the same site."""
        values = {
            "kind": "kubernetes",
            "job": "llm",
            "workload": "PyTorchJob",
            "namespace": "training",
            "eviction_deadline_s": 5,
            **settings,
        }
        return KubernetesEngine(KubernetesConfig(**values), self.api, lambda: 1000.0, self.confirm, lambda seconds: self.site.tick())

    def confirm(self) -> None:
        self.confirmed += 1

    def by_hand(self, node: str, spec: dict[str, Any]) -> None:
        """What a person does with kubectl: nobody looks at versions."""
        found = self.api.call("GET", f"/api/v1/nodes/{node}")
        about = {"resourceVersion": found["metadata"]["resourceVersion"]}
        self.api.call("PATCH", f"/api/v1/nodes/{node}", {"metadata": about, "spec": spec}, {"fieldManager": "kubectl-cordon"})

    def pods(self) -> dict[str, str]:
        """Pod to node."""
        return {pod.name: pod.node for pod in self.engine.job.pods()}

    def uids(self) -> dict[str, str]:
        return {pod.name: pod.uid for pod in self.engine.job.pods()}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def make_cluster() -> type[Cluster]:
    return Cluster
