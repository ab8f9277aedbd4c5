"""The Helm chart says what the plain manifests say, and what its values say: rendered by a real helm, without a cluster."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from minder.cli import main

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "serve/deploy/helm/minder"
PLAIN = ROOT / "serve/deploy/kubernetes"
HELMS_OWN = ("app.kubernetes.io/", "helm.sh/")  # labels and annotations by which helm knows its objects
SERVICE, AGENTS = ("Deployment", "minder"), ("DaemonSet", "minder-agent")


def without_helms_own(item: dict[str, Any]) -> dict[str, Any]:
    metadata = dict(item["metadata"])
    for name in ("labels", "annotations"):
        kept = {key: value for key, value in metadata.pop(name, {}).items() if not key.startswith(HELMS_OWN)}
        metadata |= {name: kept} if kept else {}
    return {**item, "metadata": metadata}


def pod(item: dict[str, Any]) -> dict[str, Any]:
    return dict(item["spec"]["template"]["spec"])


def containers(item: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {container["name"]: container for container in pod(item)["containers"]}


def test_the_defaults_are_the_plain_manifests(helm: Any) -> None:
    """All but the namespace: helm keeps its record of a release in it, so it is there before, and no uninstallation takes it away."""
    files = [PLAIN / name for name in ("rbac.yaml", "service.yaml", "agents.yaml")]
    plain = {(item["kind"], item["metadata"]["name"]): item for path in files for item in yaml.safe_load_all(path.read_text())}
    namespace = plain.pop(("Namespace", "minder"))
    chart = {key: without_helms_own(item) for key, item in helm.objects().items()}
    assert sorted(chart) == sorted(plain) and namespace["metadata"] == {"name": "minder"}
    for key, item in plain.items():
        assert chart[key] == item, key


def test_the_linter_finds_nothing(helm: Any) -> None:
    done = helm.call("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"\[(?:WARNING|ERROR)\].*", done.stdout) == []


def test_every_value_is_explained_and_known_to_the_schema() -> None:
    values, schema = yaml.safe_load((CHART / "values.yaml").read_text()), json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]) == {*values, "global"}  # global: where the chart is part of another
    for name, value in values.items():
        known = schema["properties"][name]
        if "properties" in known:
            assert list(known["properties"]) == list(value) == known["required"], name
    lines = (CHART / "values.yaml").read_text().splitlines()
    leaves = [number for number, line in enumerate(lines) if re.match(r" *\w+: ", line)]
    assert len(leaves) > 25
    assert [lines[number] for number in leaves if not lines[number - 1].lstrip().startswith("# ")] == []


def test_the_chart_installs_this_version() -> None:
    chart, project = yaml.safe_load((CHART / "Chart.yaml").read_text()), tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert chart["appVersion"] == chart["version"] == project["project"]["version"]


def test_it_acts_only_when_told(helm: Any) -> None:
    for value, told in (("act=false", False), ("act=true", True)):
        assert ("--act" in containers(helm.objects(value)[SERVICE])["watch"]["args"]) is told


def test_names_follow_the_release_and_its_namespace(helm: Any) -> None:
    found = helm.objects('job.namespaces=["a", "b"]', release="llm.b", namespace="care")
    assert {name for _, name in found} == {"llm-b", "llm-b-agent", "llm-b-nodes", "llm-b-register", "llm-b-jobs"}
    assert {item["metadata"].get("namespace") for key, item in found.items() if key[1] != "llm-b-jobs"} == {None, "care"}
    bindings = [item for item in found.values() if item["kind"].endswith("RoleBinding")]
    assert len(bindings) == 3 and {json.dumps(item["subjects"]) for item in bindings} == {
        json.dumps([{"kind": "ServiceAccount", "name": "llm-b", "namespace": "care"}])
    }
    assert found["Service", "llm-b"]["spec"]["selector"] == found["Deployment", "llm-b"]["spec"]["template"]["metadata"]["labels"]
    rendered = helm.template('job.namespaces=["a", "b"]').stdout
    roles = [item for item in yaml.safe_load_all(rendered) if item["metadata"]["name"] == "minder-jobs"]
    assert sorted((item["kind"], item["metadata"]["namespace"]) for item in roles) == [
        ("Role", "a"), ("Role", "b"), ("RoleBinding", "a"), ("RoleBinding", "b"),
    ]  # fmt: skip


def test_rights_can_be_fewer_or_somebody_elses(helm: Any) -> None:
    only = helm.objects('job.workloads=["PyTorchJob"]')["Role", "minder-jobs"]["rules"]
    assert only == [
        {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    ]
    without = helm.objects("rbac.create=false")
    assert not [kind for kind, _ in without if "Role" in kind] and ("ServiceAccount", "minder") in without


def test_image_resources_and_places(helm: Any) -> None:
    found = helm.objects(
        "image=registry.example/minder@sha256:0123", "imagePullPolicy=Always", 'imagePullSecrets=["registry"]',
        "controller.resources.limits.memory=8Gi", "service.resources.requests.cpu=1", "agents.resources.limits.cpu=500m",
        'placement.nodeSelector={"pool": "system"}', 'placement.tolerations=[{"key": "system", "operator": "Exists"}]',
        'agents.nodeSelector={"nvidia.com/gpu.present": null, "pool": "gpu"}', 'agents.tolerations=[{"key": "minder/evicted"}]',
        "agents.priorityClassName=high", "agents.port=9501", 'agents.extraArgs=["--retest", "/opt/site/gpu test"]',
    )  # fmt: skip
    service, agents = pod(found[SERVICE]), pod(found[AGENTS])
    all_of_them = {**containers(found[SERVICE]), **containers(found[AGENTS])}
    assert {container["image"] for container in all_of_them.values()} == {"registry.example/minder@sha256:0123"}
    assert {container["imagePullPolicy"] for container in all_of_them.values()} == {"Always"}
    assert service["imagePullSecrets"] == agents["imagePullSecrets"] == [{"name": "registry"}]
    assert all_of_them["watch"]["resources"]["limits"] == {"memory": "8Gi"}
    assert all_of_them["serve"]["resources"]["requests"] == {"cpu": 1, "memory": "512Mi"}
    assert all_of_them["agent"]["resources"]["limits"] == {"cpu": "500m", "memory": "512Mi"}
    assert service["nodeSelector"] == {"pool": "system"} and service["tolerations"] == [{"key": "system", "operator": "Exists"}]
    assert agents["nodeSelector"] == {"pool": "gpu"} and agents["tolerations"] == [{"key": "minder/evicted"}]
    assert agents["priorityClassName"] == "high"
    arguments = all_of_them["agent"]["args"]
    assert "$(ADDRESS):9501" in arguments and arguments[-2:] == ["--retest", "/opt/site/gpu test"]


def test_each_node_may_have_a_token_of_its_own(helm: Any) -> None:
    (volume,) = [item for item in pod(helm.objects("agents.tokenFolder=/etc/minder/agent")[AGENTS])["volumes"] if item["name"] == "token"]
    assert volume == {"name": "token", "hostPath": {"path": "/etc/minder/agent", "type": "Directory"}}


def test_secrets_are_named_and_never_made(helm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = helm.objects(
        "job.secret=my-job", "job.tlsSecret=caller", "service.tlsSecret=pages", "service.clientCa=true", "service.settings=service.toml",
        "agents.tokenSecret=my-token", "agents.tlsSecret=machines", "agents.clientCa=true", "ledger.urlSecret=database",
    )  # fmt: skip
    assert "Secret" not in {kind for kind, _ in found}
    service, agents = containers(found[SERVICE]), containers(found[AGENTS])
    assert "--plain-http" not in service["serve"]["args"] and "/etc/minder-tls/service/ca.crt" in service["serve"]["args"]
    assert service["serve"]["readinessProbe"]["httpGet"]["scheme"] == service["serve"]["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
    ledger = {"name": "MINDER_LEDGER", "valueFrom": {"secretKeyRef": {"name": "database", "key": "url"}}}
    assert service["watch"]["env"] == service["serve"]["env"] == [ledger]
    mounted = {
        item["name"]: item["secret"]["secretName"] for key in (SERVICE, AGENTS) for item in pod(found[key])["volumes"] if "secret" in item
    }
    assert mounted == {"job": "my-job", "controller-tls": "caller", "service-tls": "pages", "token": "my-token", "tls": "machines"}
    for container in (*service.values(), *agents.values()):
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert set(mounts) <= {item["name"] for key in (SERVICE, AGENTS) for item in pod(found[key])["volumes"]}
        assert all(mount.get("readOnly") for name, mount in mounts.items() if name in mounted)
        places = [mount["mountPath"] for mount in mounts.values()]
        files = [word for word in container["args"] if word.startswith("/etc/")]
        assert files and [name for name in files if not any(name.startswith(f"{place}/") for place in places)] == []
        assert main([container["args"][0], "--help"]) == 0
        told = capsys.readouterr().out
        assert [word for word in container["args"] if word.startswith("--") and word not in told] == []


def test_the_ledger_outlives_the_release_unless_told(helm: Any) -> None:
    claim = ("PersistentVolumeClaim", "minder")
    policy = "helm.sh/resource-policy"
    assert helm.objects()[claim]["metadata"]["annotations"] == {policy: "keep"}
    other = helm.objects("ledger.keep=false", "ledger.storageClass=fast", "ledger.size=50Gi")[claim]
    assert "annotations" not in other["metadata"]
    assert other["spec"] == {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "50Gi"}}}
    there = helm.objects("ledger.existingClaim=mine")
    assert claim not in there and {"name": "state", "persistentVolumeClaim": {"claimName": "mine"}} in pod(there[SERVICE])["volumes"]


def test_a_further_release_needs_no_agents(helm: Any) -> None:
    found = helm.objects("agents.enabled=false", release="llm-b")
    assert not [name for _, name in found if "agent" in name] and ("Deployment", "llm-b") in found


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("act=yes", "- act: Invalid type. Expected: boolean, given: string"),
        ("act=null", "- (root): act is required"),
        ("ledger.keep=null", "- ledger: keep is required"),
        ("ingress.enabled=true", "- (root): Additional property ingress is not allowed"),
        ("agents.token=s3cret", "- agents: Additional property token is not allowed"),
        ("agents.port=0", "- agents.port: Must be greater than or equal to 1"),
        ("agents.maxUnavailable=half", "- agents.maxUnavailable: Does not match pattern '^([1-9][0-9]?|100)%$'"),
        ("job.namespaces=[]", "- job.namespaces: Array must have at least 1 items"),
        ('job.workloads=["Pod"]', '- job.workloads.0: job.workloads.0 must be one of the following: "Job", "JobSet", "PyTorchJob"'),
        ("ledger.size=20GB", r"- ledger.size: Does not match pattern '^[0-9]+(\.[0-9]+)?(Mi|Gi|Ti|M|G|T)$'"),
        ("controller.resources.limits.memory=4 Gi", "- controller.resources.limits.memory: Does not match pattern"),
        ("service.settings=../etc/passwd", "- service.settings: Does not match pattern '^([A-Za-z0-9_-][A-Za-z0-9._-]*)?$'"),
    ],
)
def test_a_bad_value_is_one_line(helm: Any, value: str, line: str) -> None:
    done = helm.template(value)
    told = [text for text in done.stderr.splitlines() if text.startswith("- ")]
    assert done.returncode == 1 and len(told) == 1 and told[0].startswith(line), done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("part", ["service", "agents"])
def test_callers_without_tls_are_asked_for_no_certificate(helm: Any, part: str) -> None:
    done = helm.template(f"{part}.clientCa=true")
    assert done.returncode == 1 and f"{part}.clientCa goes with {part}.tlsSecret: certificates come over TLS only" in done.stderr
