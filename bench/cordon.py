"""How long it takes from a decision until a node is cordoned in Kubernetes: python bench/cordon.py [--rounds 100] [--registered 5000]

A real etcd, API server, scheduler and controllers on this machine (`.ci/kubernetes` builds them), twice: with four nodes alone, and with so
many more registered, and a controller's own looks at them every second. What is timed is what an eviction does: intent into the ledger,
node read, register written, node patched ("cordoned"), result into the ledger ("written"). Nodes are given back in between, untimed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from slurm import decision, drain, tell  # bench/slurm.py: the same rounds

from minder.act.actuators.kubernetes.config import KubernetesConfig
from minder.act.actuators.kubernetes.engine import KubernetesEngine
from minder.act.controller.engine.watch import EngineWatch
from minder.act.controller.engine.work import DRAIN, EngineWork
from minder.model.clock import SystemClock
from minder.record.incidents import Ledger
from minder.simulate.lab.kubelets import JobBeside, Kubelets, node_object, pytorch_job
from minder.simulate.lab.kubernetes import LocalKubernetes

NODES = ("n1", "n2", "n3", "n4")
JOB = pytorch_job("llm", 2)


def measure(cluster: LocalKubernetes, folder: Path, rounds: int, watched: bool) -> list[tuple[float, float]]:
    """Seconds until cordoned and until written, of each round, in order."""
    clock = SystemClock()
    config = KubernetesConfig(kind="kubernetes", job="llm", workload="PyTorchJob", namespace="training", max_held=len(NODES))
    engine = KubernetesEngine(config, JobBeside(cluster.calls(), JOB), clock.now_s)
    watch = EngineWatch(engine, NODES, every_s=1.0)
    if watched:
        watch.start()
        assert not watch.trouble, watch.trouble
    seconds = []
    with Ledger(folder / f"ledger-{watched}.db") as ledger:
        work = EngineWork(engine, ledger, "bench", clock, (DRAIN,))
        for index in range(rounds):
            node, operation = NODES[index % len(NODES)], f"evict-{index:012x}"
            seconds.append(drain(work, decision(operation, node, clock.now_s())))
            given = engine.uncordon(node, "return", {operation})
            assert given.outcome == "done", given
            while (left := engine.nodes.show(node)).unschedulable or left.taints:  # Kubernetes' own taint goes a moment later
                time.sleep(0.01)
        work.close()
    watch.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--registered", type=int, default=5000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="minder-kubernetes-") as name, LocalKubernetes(Path(name), grace_s=100_000) as cluster:
        calls = cluster.calls()
        for namespace in ("minder", "training"):
            calls.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        with Kubelets(calls, NODES) as kubelets:
            kubelets.jobs.append(JOB)
            tell("4 nodes, alone", measure(cluster, Path(name), options.rounds, False))
            begun_s = time.monotonic()
            for index in range(options.registered):
                calls.call("POST", "/api/v1/nodes", node_object(f"x{index}", f"serial-x{index}"))
            print(f"{options.registered} nodes registered in {time.monotonic() - begun_s:.0f} s", flush=True)
            tell(f"4 nodes, {options.registered} more registered, looked at", measure(cluster, Path(name), options.rounds, True))


if __name__ == "__main__":
    main()
