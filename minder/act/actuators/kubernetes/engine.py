"""Kubernetes behind the engine contract: one job, and the nodes that it runs on or may come to run on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from minder.act.actuators.contract import EngineSnapshot
from minder.act.actuators.kubernetes.calls import Calls
from minder.act.actuators.kubernetes.config import KubernetesConfig
from minder.act.actuators.kubernetes.evictions import Evictions
from minder.act.actuators.kubernetes.likeness import unlike, unlike_image
from minder.act.actuators.kubernetes.marks import held_by_others, is_ours, operation_at
from minder.act.actuators.kubernetes.mirror import Mirror
from minder.act.actuators.kubernetes.nodes import Holding, KubernetesNodes
from minder.act.actuators.kubernetes.records import NodeRecord, PodRecord, read_node, read_pod
from minder.act.actuators.kubernetes.register import Entry, Register
from minder.act.actuators.kubernetes.standbys import KubernetesStandbys
from minder.act.actuators.kubernetes.workload import Workload
from minder.model.decision import ActionResult
from minder.model.errors import ActuatorError

__all__ = ["KubernetesEngine"]


class KubernetesEngine:
    """actuators.contract.Engine. now_s: the clock; confirm: called last before every write, raises if another controller leads."""

    name = "kubernetes"

    def __init__(
        self,
        config: KubernetesConfig,
        calls: Calls,
        now_s: Callable[[], float],
        confirm: Callable[[], None] = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.max_held = config.max_held
        self.job_name = config.job
        self._config = config
        self._now_s = now_s
        holding = Holding(f"{config.namespace}/{config.job}", config.hardware, config.max_held)
        self.nodes = KubernetesNodes(calls, Register(calls, config.home, confirm), holding, now_s, confirm)
        self.job = Workload(calls, config.namespace, config.workload, config.job, config.kueue)
        self._standbys = KubernetesStandbys(calls, config.namespace, config.standby_deployment, confirm)
        self._evictions = Evictions(calls, confirm, config.eviction_deadline_s, sleep)
        selector = {"labelSelector": config.nodes} if config.nodes else {}
        self._all_nodes = Mirror(calls, "/api/v1/nodes", read_node, selector)
        self._all_pods = Mirror(calls, "/api/v1/pods", read_pod, {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"})

    def look(self, machines: Sequence[str]) -> EngineSnapshot:
        time_s = self._now_s()  # what is read is at least as new
        job = self.job.show()
        entries = self.nodes.register.entries()
        nodes = {node.name: node for node in self._all_nodes.records()}
        pods = self._all_pods.records()
        own = [pod for pod in self.job.ordered(pods) if pod.node]
        members = tuple(dict.fromkeys(pod.node for pod in own if not pod.is_ending))
        neighbours = _neighbours(pods, own, self.job)
        held = self._held(nodes, entries, own, members[: self._config.machines])
        free = tuple(name for name, node in nodes.items() if node.is_ready and name not in {*held, *neighbours, *members})
        refusal = self._refusal(job.over, job.rival, job.is_suspended)
        return EngineSnapshot(time_s, members, free, held, _ours(nodes, entries), neighbours, refusal)

    def _refusal(self, over: str, rival: str, is_suspended: bool) -> str:
        if over:
            return f"{self.job} is over ({over})"
        return f"{self.job} is suspended: a person or another program stopped it" if is_suspended else rival

    def _held(
        self, nodes: dict[str, NodeRecord], entries: dict[str, Entry], own: Sequence[PodRecord], members: Sequence[str]
    ) -> dict[str, str]:
        """Machine to why it is kept out of work: by minder, by others, for its hardware, or for being another kind of machine."""
        alike = [nodes[name] for name in members if name in nodes]
        ranks = [pod for pod in own if pod.node in members]
        spares = {pod.node: pod for pod in own if pod.node not in members}
        barred = {entry.hardware: entry for entry in entries.values() if entry.hardware}
        devices = _devices(own)
        found: dict[str, str] = {}
        for name, node in nodes.items():
            why = f"minder {operation_at(node)}" if is_ours(node) else held_by_others(node, lambda taint: _tolerated(taint, own))
            entry = barred.get(node.hardware(self._config.hardware))
            if not why and entry is not None and _is_anew(node, entry):
                why = f"the same hardware as {entry.node}, which minder {entry.operation} took away"
            if not why and name not in members:
                why = unlike(node, alike, self._config.alike, devices) or (unlike_image(spares[name], ranks) if name in spares else "")
            if why:
                found[name] = why
        return found

    def cordon(self, machine: str, operation_id: str, why: str) -> ActionResult:
        return self.nodes.cordon(machine, operation_id, why)

    def uncordon(self, machine: str, operation_id: str, known: Collection[str]) -> ActionResult:
        return self.nodes.uncordon(machine, operation_id, known)

    def release(self, machine: str) -> str:
        """Evict the job's pod from a machine; whatever replaces it goes elsewhere, and the job's other pods stay."""
        self._demand_one_owner()
        leaving = [pod for pod in self.job.pods() if pod.node == machine]
        if not leaving:
            return f"{self.job} has no pod on {machine} any more"
        self._evictions.evict(leaving, self.job.pods)
        return f"{', '.join(pod.name for pod in leaving)} was evicted from {machine}; {self.job} goes on"

    def restart(self, known: int) -> str:
        """Without a machine that is held nothing could say which pods were meant, and a second call would evict the new ones."""
        raise ActuatorError(f"{self.job} is not started again without a machine to take away: restart it by hand")

    def own_retries(self) -> str:
        return ""

    def ask_standbys(self, count: int, operation_id: str) -> str:
        return self._standbys.ask(count, operation_id)

    def forgo_standbys(self, operation_id: str) -> str:
        return self._standbys.forgo(operation_id)

    def restart_without(self, machines: Sequence[str]) -> str:
        """Evict every pod of the job, the bad machines' first; its controller makes new ones, which the scheduler places elsewhere.

        Which pods are meant is written down first, so that a second call finishes the first one's work and touches no new pod.
        """
        self._demand_one_owner()
        pods = self.job.pods()
        self._hold_what_came_back()
        entries = {name: entry for name, entry in self.nodes.register.entries().items() if name in machines}
        noted = {uid for entry in entries.values() for uid in entry.restarting}
        inside = [pod for pod in pods if pod.node in machines]
        fresh = [pod for pod in inside if pod.uid not in noted]
        if fresh:
            noted = {pod.uid for pod in pods}
            for name in machines:
                self.nodes.register.note_restart(name, tuple(sorted(noted)))
        leaving = [pod for pod in pods if pod.uid in noted]
        if not leaving:
            return f"{self.job} runs without {', '.join(machines)}"
        # Where nothing could be noted (others hold the machine), its pod goes last: as long as it is there, this is not done.
        first = len(entries) == len(machines)
        self._evictions.evict(sorted(leaving, key=lambda pod: (pod.node in machines) != first), self.job.pods)
        return f"{len(leaving)} pods of {self.job} were evicted; it starts again without {', '.join(machines)}"

    def _demand_one_owner(self) -> None:
        """Raises ActuatorError if the job is over, stopped, or restarted by another owner too."""
        job = self.job.show()
        why = self._refusal(job.over, job.rival, job.is_suspended)
        if why:
            raise ActuatorError(f"nothing is evicted: {why}")

    def _hold_what_came_back(self) -> None:
        """A barred machine whose node registered anew, under its name or another, lost its marks: they are set again."""
        barred = {entry.hardware: entry for entry in self.nodes.register.entries().values() if entry.hardware}
        if not barred:
            return
        for node in self.nodes.show_all():  # not the copy, which belongs to the thread that looks
            entry = barred.get(node.hardware(self._config.hardware))
            if entry is not None and _is_anew(node, entry) and not is_ours(node):
                self.nodes.hold_again(node, entry)


def _is_anew(node: NodeRecord, entry: Entry) -> bool:
    """Another object than the one that was marked. The same one without marks was let go by a person, who is obeyed."""
    return node.uid != entry.node_uid


def _ours(nodes: dict[str, NodeRecord], entries: dict[str, Entry]) -> dict[str, str]:
    """Machines that minder keeps out, to the operation; not those whose marks a person took away."""
    found = {name: operation_at(node) for name, node in nodes.items() if is_ours(node)}
    for name, entry in entries.items():
        node = nodes.get(name)
        if node is None or _is_anew(node, entry):
            found.setdefault(name, entry.operation)
    return found


def _devices(own: Sequence[PodRecord]) -> frozenset[str]:
    return frozenset(name for pod in own for name in pod.devices)


def _tolerated(taint: object, own: Sequence[PodRecord]) -> bool:
    return bool(own) and all(pod.tolerates(taint) for pod in own)  # type: ignore[arg-type]


def _neighbours(pods: Sequence[PodRecord], own: Sequence[PodRecord], job: Workload) -> dict[str, tuple[str, ...]]:
    """Node to others' pods that an eviction would touch: those with a device like the job's. For a job without devices, every pod that
    is neither the node's own nor the cluster's (kube-system)."""
    devices = _devices(own)
    found: dict[str, tuple[str, ...]] = {}
    for pod in pods:
        if not pod.node or pod.is_over or pod.is_of_the_node or job.has(pod):
            continue
        if pod.devices & devices if devices else pod.namespace != "kube-system":
            found[pod.node] = (*found.get(pod.node, ()), f"pod {pod.namespace}/{pod.name}{f' of {pod.owner}' if pod.owner else ''}")
    return found
