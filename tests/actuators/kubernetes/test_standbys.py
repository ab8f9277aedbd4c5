"""A Deployment of standbys: larger where some are missing, smaller again by what did not come, and nothing twice."""

from __future__ import annotations

from typing import Any

import pytest

from minder.act.actuators.kubernetes.standbys import KubernetesStandbys
from minder.model.errors import ActuatorError, EngineRefusalError

PATH = "/apis/apps/v1/namespaces/training/deployments/standbys"


class Api:
    """One Deployment. conflicts: so many writes meet another version."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 2}, "status": {"readyReplicas": 2}}
        self.conflicts, self.writes = 0, 0

    def call(self, method: str, path: str, body: Any = None, query: Any = None) -> Any:
        assert path == PATH
        if method == "PATCH":
            if self.conflicts:
                self.conflicts -= 1
                raise EngineRefusalError("the object has been modified", 409)
            self.writes += 1
            self.found["metadata"]["annotations"] = body["metadata"]["annotations"]
            self.found["spec"] = body["spec"]
        return self.found

    def watch(self, path: str, query: Any) -> Any:
        raise AssertionError


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def standbys(api: Api) -> KubernetesStandbys:
    return KubernetesStandbys(api, "training", "standbys", lambda: None)


def test_it_is_made_larger_once(api: Api, standbys: KubernetesStandbys) -> None:
    api.conflicts = 2
    assert "asked for 5 pods in place of 2" in standbys.ask(3, "op-1")
    assert "already" in standbys.ask(3, "op-1")
    assert (api.found["spec"], api.writes) == ({"replicas": 5}, 1)


@pytest.mark.parametrize(("ready", "kept"), [(2, 2), (4, 4), (5, 5), (0, 2)])
def test_what_has_come_stays_and_no_fewer_than_before(api: Api, standbys: KubernetesStandbys, ready: int, kept: int) -> None:
    standbys.ask(3, "op-1")
    api.found["status"]["readyReplicas"] = ready
    assert f"has {kept} pods" in standbys.forgo("op-1")
    assert api.found["spec"] == {"replicas": kept} and "nothing is changed" in standbys.forgo("op-1")


def test_what_another_operation_asked_for_is_left_alone(api: Api, standbys: KubernetesStandbys) -> None:
    standbys.ask(3, "op-2")
    assert "nothing is changed" in standbys.forgo("op-1") and api.found["spec"] == {"replicas": 5}


def test_a_site_without_a_deployment_says_what_to_set(api: Api) -> None:
    with pytest.raises(ActuatorError, match=r"engine\.standby_deployment"):
        KubernetesStandbys(api, "training", None, lambda: None).ask(1, "op-1")
