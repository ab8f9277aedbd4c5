"""Kubernetes as the owner of the machines: a real API server, scheduler and controllers, under the rights of rbac.yaml and no others."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minder.act.actuators.kubernetes.calls import KubernetesCalls
from minder.act.actuators.kubernetes.config import KubernetesConfig
from minder.act.actuators.kubernetes.engine import KubernetesEngine
from minder.act.actuators.kubernetes.mirror import Mirror
from minder.act.actuators.kubernetes.records import read_node
from minder.act.controller.engine.work import DRAIN, REQUEUE, EngineWork
from minder.model.clock import SystemClock
from minder.model.decision import Decision
from minder.model.errors import ActuatorError, EngineRefusalError, EngineUnavailableError
from minder.model.evidence import Verdict
from minder.record.incidents import Ledger
from minder.simulate.lab.kubelets import JobBeside, Kubelets, pytorch_job
from minder.simulate.lab.kubernetes import LocalKubernetes

pytestmark = [pytest.mark.server("kubernetes"), pytest.mark.timeout(200)]

RIGHTS = Path(__file__).resolve().parents[2] / "serve/deploy/kubernetes/rbac.yaml"
NODES = ("n1", "n2", "n3", "n4", "n5")
COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}
BUDGETS = "/apis/policy/v1beta1/namespaces/training/poddisruptionbudgets"
PODS = "/api/v1/namespaces/training/pods"


class Site:
    """`admin`: may do everything, as a person with kubectl; `rights`: a kubeconfig of minder's service account."""

    def __init__(self, cluster: LocalKubernetes) -> None:
        self.cluster = cluster
        self.admin = cluster.calls()
        self.admin.call("POST", COLLECTIONS["Namespace"], {"metadata": {"name": "training"}})
        for item in yaml.safe_load_all(RIGHTS.read_text()):
            self.admin.call("POST", COLLECTIONS[item["kind"]].format(item["metadata"].get("namespace")), item)
        self.rights = cluster.service_account("minder", "minder")

    def submit(self, count: int, kubelets: Kubelets) -> None:
        self.job = pytorch_job("llm", count)
        kubelets.jobs.append(self.job)
        self.until(lambda: len(self.placed()) == count, "the job's pods")

    def engine(self, **settings: Any) -> KubernetesEngine:
        values = {
            "kind": "kubernetes",
            "job": "llm",
            "workload": "PyTorchJob",
            "namespace": "training",
            "eviction_deadline_s": 20,
            **settings,
        }
        return KubernetesEngine(KubernetesConfig(**values), JobBeside(self.calls(), self.job), time.time)

    def calls(self, deadline_s: float = 10.0) -> KubernetesCalls:
        return self.cluster.calls(deadline_s, self.rights)

    def placed(self) -> dict[str, str]:
        """Running pods of the job, to their nodes."""
        found = self.admin.call("GET", PODS)["items"]
        running = [item for item in found if item["status"].get("phase") == "Running" and "deletionTimestamp" not in item["metadata"]]
        return {item["metadata"]["name"]: item["spec"]["nodeName"] for item in running}

    def uids(self) -> set[str]:
        return {item["metadata"]["uid"] for item in self.admin.call("GET", PODS)["items"]}

    def by_hand(self, node: str, spec: dict[str, Any]) -> None:
        self.admin.call("PATCH", f"/api/v1/nodes/{node}", {"spec": spec}, {"fieldManager": "kubectl-cordon"})

    def until(self, look: Callable[[], Any], what: str, limit_s: float = 30.0) -> Any:
        end_s, told = time.monotonic() + limit_s, ""
        while time.monotonic() < end_s:
            try:
                if found := look():
                    return found
            except ActuatorError as error:
                told = str(error)
            time.sleep(0.1)
        raise AssertionError(f"{what} did not come within {limit_s:.0f} s {told}: {self.placed()}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with LocalKubernetes(tmp_path_factory.mktemp("kubernetes")) as cluster:
        made = Site(cluster)
        with Kubelets(made.admin, NODES) as kubelets:
            made.submit(3, kubelets)
            yield made


def test_an_eviction_takes_the_node_and_restarts_the_job_elsewhere(site: Site, tmp_path: Path) -> None:
    engine = site.engine()
    before, uids = site.placed(), site.uids()
    bad = before["llm-worker-1"]
    spares = sorted(set(NODES) - set(before.values()))
    site.by_hand(spares[0], {"unschedulable": True})
    found = engine.look(NODES)
    assert (set(found.members), found.free, found.refusal) == (set(before.values()), (spares[1],), "")
    assert found.cordoned == {spares[0]: "cordoned by kubectl-cordon"}

    decision = Decision("evict-0123456789ab", time.time(), "evict", (bad,), "act", "", _verdict(bad))
    ended: list[dict[str, Any]] = []
    with Ledger(tmp_path / "ledger.db") as ledger:
        work = EngineWork(engine, ledger, "llm", SystemClock(), (DRAIN, REQUEUE))
        work.on_done = lambda owner, results: ended.append(dict(results))
        work.begin(decision, None)
        site.until(lambda: work.tick(time.time()) or ended, "the end of both steps")
        work.close()
    assert [result.outcome for result in ended[0].values()] == ["done", "done"], ended
    after = site.until(lambda: len(site.placed()) == 3 and site.placed(), "the new pods")
    assert set(after.values()) == {*before.values(), spares[1]} - {bad} and not uids & site.uids()

    shown = engine.nodes.show(bad)
    assert shown.unschedulable and [taint.key for taint in shown.taints if taint.key == "minder/evicted"]
    assert shown.annotations["minder/operation"] == "evict-0123456789ab" and shown.cordoned_by == "minder"
    look = engine.look(NODES)
    assert look.cordoned_by_minder == {bad: "evict-0123456789ab"} and look.cordoned[spares[0]] == "cordoned by kubectl-cordon"
    again = site.uids()
    assert "runs without" in engine.restart_without([bad]) and site.uids() == again, "done twice it changes nothing"
    _return(site, tmp_path, bad, spares[0])


def _return(site: Site, folder: Path, ours: str, theirs: str) -> None:
    """By the command: what is ours is undone, what is another's is not."""
    config = folder / "job.toml"
    engine = f'[engine]\nkind = "kubernetes"\njob = "llm"\nworkload = "PyTorchJob"\nnamespace = "training"\nkubeconfig = "{site.rights}"\n'
    config.write_text(f'name = "llm"\nstate_dir = "{folder}"\n{engine}')
    command = [sys.executable, "-m", "minder", "machine", "return"]
    done = subprocess.run([*command, ours, "--config", str(config)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    shown = site.engine().nodes.show(ours)  # Kubernetes' own taint of an unschedulable node goes a moment later
    assert not shown.unschedulable and "minder/evicted" not in [taint.key for taint in shown.taints]
    assert not [key for key in (*shown.annotations, *shown.labels) if key.startswith("minder/")]
    refused = subprocess.run([*command, theirs, "--config", str(config)], capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "cordoned by kubectl-cordon; that is not ours to undo" in refused.stderr
    assert site.engine().nodes.show(theirs).unschedulable
    site.by_hand(theirs, {"unschedulable": None})


def test_a_disruption_budget_is_honoured(site: Site) -> None:
    engine = site.engine(eviction_deadline_s=3)
    spec = {"minAvailable": 3, "selector": {"matchLabels": {"training.kubeflow.org/job-name": "llm"}}}
    site.admin.call("POST", BUDGETS, {"metadata": {"name": "whole"}, "spec": spec})
    site.until(lambda: site.admin.call("GET", f"{BUDGETS}/whole")["status"].get("currentHealthy") == 3, "the budget")
    bad, uids = site.placed()["llm-worker-2"], site.uids()
    with pytest.raises(ActuatorError, match=r"0 of 3 pods were evicted, not llm-worker-\d within 3 s: a PodDisruptionBudget says no"):
        engine.restart_without([bad])
    assert site.uids() == uids
    site.admin.call("DELETE", f"{BUDGETS}/whole")
    assert "was evicted" in engine.release(bad)
    site.until(lambda: len(site.placed()) == 3, "the new pod")


def test_a_write_on_what_has_changed_is_refused_and_an_old_watch_is_begun_anew(site: Site) -> None:
    node = site.engine().nodes.show("n1")
    site.by_hand("n1", {"taints": [{"key": "hpc/look", "effect": "PreferNoSchedule"}]})
    body = {"metadata": {"resourceVersion": node.version}, "spec": {"unschedulable": True}}
    with pytest.raises(EngineRefusalError) as refused:
        site.calls().call("PATCH", "/api/v1/nodes/n1", body)
    assert refused.value.status == 409
    site.by_hand("n1", {"taints": None})
    mirror = Mirror(site.calls(), "/api/v1/nodes", read_node, {})
    mirror._version = "1"  # long forgotten
    assert sorted(item.name for item in mirror.records()) == list(NODES)
    site.by_hand("n5", {"unschedulable": True})
    assert [item.name for item in mirror.records() if item.unschedulable] == ["n5"]
    site.by_hand("n5", {"unschedulable": None})


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", f"{PODS}/llm-worker-0", None),
        ("PATCH", f"{PODS}/llm-worker-0", {"metadata": {"labels": {"x": "y"}}}),
        ("POST", "/api/v1/namespaces/kube-system/pods/x/eviction", {"metadata": {"name": "x"}}),
        ("DELETE", "/api/v1/nodes/n1", None),
        ("GET", "/api/v1/namespaces/minder/secrets", None),
        ("GET", "/api/v1/namespaces/minder/configmaps/another", None),
        ("PATCH", "/apis/kubeflow.org/v1/namespaces/training/pytorchjobs/llm", {"spec": {}}),
    ],
)
def test_nothing_more_is_allowed_than_is_needed(site: Site, method: str, path: str, body: Any) -> None:
    with pytest.raises(EngineRefusalError, match=r"forbidden.*rbac\.yaml") as refused:
        site.calls().call(method, path, body)
    assert refused.value.status == 403


def test_a_server_that_is_stopped_is_told_in_time(site: Site) -> None:
    engine = KubernetesEngine(
        KubernetesConfig(kind="kubernetes", job="llm", workload="PyTorchJob", namespace="training"), site.calls(1.0), time.time
    )
    site.cluster.signal_server(signal.SIGSTOP)
    try:
        with pytest.raises(EngineUnavailableError, match="within 1 s"):
            engine.cordon("n4", "evict-0a", "stall")
    finally:
        site.cluster.signal_server(signal.SIGCONT)
    assert not site.until(lambda: engine.nodes.show("n4"), "the server").unschedulable


def _verdict(machine: str) -> Verdict:
    return Verdict(time.time(), "machine", "evict", (machine,), "stall", 0.95, time.time())
