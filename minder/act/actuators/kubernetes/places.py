"""Where the pods of a job are, and at what addresses agents and launchers answer there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minder.act.actuators.kubernetes.calls import Calls
from minder.act.actuators.kubernetes.config import KubernetesConfig
from minder.act.actuators.kubernetes.mirror import list_all
from minder.act.actuators.kubernetes.records import NodeRecord, PodRecord, read_node
from minder.act.actuators.kubernetes.workload import Workload
from minder.model.errors import ActuatorError

__all__ = ["Place", "find_places"]


@dataclass(frozen=True, slots=True)
class Place:
    """A node of the job (its pod is there), or one where it may come to run. agent, launcher: URLs, None where none is configured."""

    node: str
    is_member: bool
    agent: str | None
    launcher: str | None


def find_places(config: KubernetesConfig, calls: Calls, *, around: bool) -> list[Place]:
    """The job's nodes in the order of its ranks; around: then every other node of engine.nodes.

    Raises ActuatorError for a job that is not there, is over, has a pod without a node yet or two pods on one node.
    """
    job = Workload(calls, config.namespace, config.workload, config.job, config.kueue)
    shown = job.show()
    if shown.over:
        raise ActuatorError(f"{job} is over ({shown.over})")
    pods = [pod for pod in job.pods() if not pod.is_ending]
    if not around:
        _demand_placed(job, pods)
    items, _ = list_all(calls, "/api/v1/nodes", {"labelSelector": config.nodes} if config.nodes and around else {})
    nodes = {node.name: node for node in map(read_node, items)}
    places = [_place(config, pod.node, nodes.get(pod.node), pod) for pod in {pod.node: pod for pod in pods if pod.node}.values()]
    members = {place.node for place in places}
    if around and config.nodes:
        places += [_place(config, name, node, None) for name, node in nodes.items() if name not in members]
    return places


def _demand_placed(job: Workload, pods: Sequence[PodRecord]) -> None:
    waiting = [pod.name for pod in pods if not pod.node]
    if waiting or not pods:
        why = f"{', '.join(waiting[:5])} has no node yet" if waiting else "it has no pods"
        raise ActuatorError(f"{job} waits: {why}")
    nodes = [pod.node for pod in pods]
    twice = next((node for node in nodes if nodes.count(node) > 1), None)
    if twice is not None:
        raise ActuatorError(f"{job} has two pods on {twice}: a machine has one launcher (give its pods an anti-affinity)")


def _place(config: KubernetesConfig, name: str, node: NodeRecord | None, pod: PodRecord | None) -> Place:
    words = {"{node}": name, "{node_ip}": node.address if node else "", "{pod_ip}": pod.address if pod else ""}

    def filled(url: str | None) -> str | None:
        if url is None:
            return None
        for word, value in words.items():
            if word in url and not value:
                return None
            url = url.replace(word, value)
        return url

    return Place(name, pod is not None, filled(config.agent), filled(config.launcher))
