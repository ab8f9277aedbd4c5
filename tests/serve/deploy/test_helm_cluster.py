"""The Helm chart on a real API server: its own validation, and what is left of it when it goes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minder.act.actuators.kubernetes.calls import KubernetesCalls
from minder.simulate.lab.kubernetes import LocalKubernetes

pytestmark = [pytest.mark.server("kubernetes"), pytest.mark.timeout(120)]

ROOT = Path(__file__).resolve().parents[3]
CHART = "serve/deploy/helm/minder"
PAGE = ROOT / "docs/install-kubernetes.md"
PLAIN = ROOT / "serve/deploy/kubernetes"
RBAC, APPS, CORE = "/apis/rbac.authorization.k8s.io/v1", "/apis/apps/v1", "/api/v1"
COLLECTIONS = {
    "Namespace": f"{CORE}/namespaces",
    "ServiceAccount": f"{CORE}/namespaces/{{}}/serviceaccounts",
    "Service": f"{CORE}/namespaces/{{}}/services",
    "PersistentVolumeClaim": f"{CORE}/namespaces/{{}}/persistentvolumeclaims",
    "Secret": f"{CORE}/namespaces/{{}}/secrets",
    "ConfigMap": f"{CORE}/namespaces/{{}}/configmaps",
    "Deployment": f"{APPS}/namespaces/{{}}/deployments",
    "DaemonSet": f"{APPS}/namespaces/{{}}/daemonsets",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/{{}}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{{}}/rolebindings",
}
CLAIM = ("PersistentVolumeClaim", "minder")


class Cluster:
    """A cluster with the namespaces of the page, and helm as its administrator runs it."""

    def __init__(self, running: LocalKubernetes, helm: Any) -> None:
        self.calls: KubernetesCalls = running.calls()
        self._helm, self._kubeconfig = helm, running.kubeconfig
        for name in ("training", "minder"):
            self.calls.call("POST", COLLECTIONS["Namespace"], {"metadata": {"name": name}})
        self.empty = self.objects()

    def helm(self, *arguments: str) -> str:
        done = self.try_helm(*arguments)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def try_helm(self, *arguments: str) -> Any:
        return self._helm.call(*arguments, kubeconfig=self._kubeconfig)

    def objects(self) -> dict[tuple[str, str], dict[str, Any]]:
        """All objects of those kinds that are not about to go, by kind and name."""
        paths = [(kind, path.format(place)) for kind, path in COLLECTIONS.items() for place in ("minder", "training")]
        found = [(kind, item) for kind, path in dict.fromkeys(paths) for item in self.calls.call("GET", path)["items"]]
        return {(kind, item["metadata"]["name"]): item for kind, item in found if "deletionTimestamp" not in item["metadata"]}

    def let_claims_go(self) -> None:
        """What the controller does that protects claims while they are mounted: the lab has none."""
        for item in self.calls.call("GET", COLLECTIONS["PersistentVolumeClaim"].format("minder"))["items"]:
            path = f"{COLLECTIONS['PersistentVolumeClaim'].format('minder')}/{item['metadata']['name']}"
            self.calls.call("PATCH", path, {"metadata": {"finalizers": None}})

    def arguments(self, container: str) -> list[str]:
        pod = self.objects()["Deployment", "minder"]["spec"]["template"]["spec"]
        return next(list(item["args"]) for item in pod["containers"] if item["name"] == container)


@pytest.fixture(scope="module")
def running(helm: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with LocalKubernetes(tmp_path_factory.mktemp("kubernetes")) as started:
        yield Cluster(started, helm)


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """As empty as it was at first; what a test left is its failure."""
    yield running
    assert set(running.objects()) == set(running.empty)
    running.let_claims_go()


def test_the_page_is_typed_and_leaves_nothing_but_the_ledger(cluster: Cluster, tmp_path: Path) -> None:
    page = PAGE.read_text()
    (values,) = re.findall(r'^```yaml title="values.yaml"\n(.*?)^```', page, re.MULTILINE | re.DOTALL)
    (tmp_path / "values.yaml").write_text(values)
    typed = [line.split("#")[0].replace("values.yaml", str(tmp_path / "values.yaml")).split() for line in page.splitlines()]
    commands = [words[1:] for words in typed if words[:1] == ["helm"]]
    assert [words[0] for words in commands] == ["install", "upgrade", "upgrade", "uninstall"]

    said = cluster.helm(*commands[0])
    assert "This is a dry run" in said and "minder-agent-token (key: token)" in said and "which no registry has" not in said
    plain = [item for name in ("rbac", "service", "agents") for item in yaml.safe_load_all((PLAIN / f"{name}.yaml").read_text())]
    there = cluster.objects()
    assert {(item["kind"], item["metadata"]["name"]) for item in plain} <= set(there)
    assert "--act" not in cluster.arguments("watch")

    assert "minder ACTS: it cordons nodes and evicts pods in training" in cluster.helm(*commands[1])
    assert cluster.arguments("watch")[-1] == "--act"
    assert "This is a dry run" in cluster.helm(*commands[2]) and "--act" not in cluster.arguments("watch")

    assert "[PersistentVolumeClaim] minder" in cluster.helm(*commands[3])
    assert set(cluster.objects()) - set(cluster.empty) == {CLAIM}
    kept = cluster.objects()[CLAIM]["metadata"]["uid"]
    cluster.helm(*commands[0], "--set", "ledger.keep=false")
    assert cluster.objects()[CLAIM]["metadata"]["uid"] == kept, "the next installation takes the ledger over"
    cluster.helm(*commands[3])


def test_every_value_passes_the_server(cluster: Cluster) -> None:
    values = [
        "act=true", "imagePullPolicy=Always", "imagePullSecrets={registry}", "job.tlsSecret=caller", "job.namespaces={minder,training}",
        "service.tlsSecret=pages", "service.clientCa=true", "service.settings=service.toml", "placement.nodeSelector.pool=system",
        "placement.tolerations[0].key=system,placement.tolerations[0].operator=Exists", "ledger.urlSecret=database", "ledger.size=5Gi",
        "ledger.storageClass=fast", "ledger.keep=false", "agents.tlsSecret=machines", "agents.clientCa=true", "agents.maxUnavailable=2",
        "agents.tolerations[0].key=minder/evicted,agents.tolerations[0].operator=Exists", "agents.extraArgs={--gpu,off}",
    ]  # fmt: skip
    told = [word for value in values for word in ("--set", value)]
    cluster.helm("install", "minder", CHART, "-n", "minder", *told)
    cluster.helm("install", "llm-b", CHART, "-n", "minder", "--set", "agents.enabled=false,ledger.existingClaim=minder,rbac.create=false")
    refused = cluster.try_helm("upgrade", "minder", CHART, "-n", "minder", *told, "--set", "agents.resources.limits.cpu=1m")
    assert refused.returncode == 1 and "must be less than or equal to cpu limit" in refused.stderr
    cluster.helm("rollback", "minder", "1", "-n", "minder")
    for release in ("llm-b", "minder"):
        cluster.helm("uninstall", release, "-n", "minder")


def test_plain_manifests_become_a_release(cluster: Cluster) -> None:
    for name in ("rbac", "service", "agents"):
        for item in yaml.safe_load_all((PLAIN / f"{name}.yaml").read_text()):
            if item["kind"] != "Namespace":
                cluster.calls.call("POST", COLLECTIONS[item["kind"]].format(item["metadata"].get("namespace")), item)
    before = cluster.objects()
    install = ("install", "minder", CHART, "-n", "minder", "--set", "ledger.keep=false")
    assert "cannot be imported into the current release" in cluster.try_helm(*install).stderr
    cluster.helm(*install, "--take-ownership")
    after = cluster.objects()
    for key, item in before.items():
        assert after[key]["metadata"]["uid"] == item["metadata"]["uid"], f"{key} was made anew"
        assert after[key].get("spec") == item.get("spec"), f"{key} was changed: its pods would start again"
    cluster.helm("uninstall", "minder", "-n", "minder")
