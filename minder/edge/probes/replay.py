"""A group of machines replays the job together: this machine's ranks of it, for so many steps, several times.

    python -m minder.edge.probes.replay --json --options - < order.json

Either a small reference model in the job's tensor and pipeline parallelism, or the job's own script under MINDER_REPLAY=steps,seed,layers.
What every rank computed is reported, and judged beside the other machines of the group (minder.diagnose.diagnostics.replay_runs): this
machine by itself says nothing.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from minder.edge.probes.contract import Finding, Probe
from minder.edge.probes.hardware import cpu_facts
from minder.edge.probes.program import run
from minder.edge.probes.replay_lines import read_run
from minder.edge.probes.replay_order import ReplayOrder, parse_replay
from minder.model.probes import Measurement
from minder.model.replay import RankRun
from minder.wire.codec import to_json

__all__ = ["PROBE", "main", "measure"]

PROBE = Probe(
    name="replay",
    version=1,
    says="the job's own steps on a group of its machines, each step hashed",
    limit_s=3600.0,
    needs=("torch", "peers"),
    measures={"replay_time": "seconds of all runs; not judged"},
    source="ByteRobust's dual-phase replay (SOSP 2025, Algorithm 1)",
)
_SPARE_S = 5.0  # of the limit: what hangs is ended then, and reported
_ECHO_S = 10.0  # so long ranks have to notice that one beside them has failed
_POLL_S = 0.05


class Child(Protocol):
    """One rank's process."""

    def status(self) -> int | None: ...

    def kill(self) -> None: ...


class Forked:
    """A rank that was forked from this process, which has loaded torch."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._pid = os.fork()
        if not self._pid:
            try:
                work()
            finally:
                os._exit(1)
        self._status: int | None = None

    def status(self) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def kill(self) -> None:
        if self.status() is None:
            os.kill(self._pid, 9)
            self._status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


class Started:
    """A rank that runs the job's own script."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, *command], env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    def status(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(options: Mapping[str, Any]) -> Finding:
    """options: replay (the order), limit_s; of the launcher: script (its command), environment. data: "ranks", each rank's runs."""
    order, command = parse_replay(options.get("replay")), tuple(options.get("script") or ())
    if order.program == "script" and not command:
        return Finding("not_applicable", "this launcher has no script to replay")
    begun_s = time.monotonic()
    end_s = begun_s + float(options.get("limit_s", PROBE.limit_s)) - _SPARE_S
    around = _around(order, options.get("environment") or {})
    with tempfile.TemporaryDirectory(prefix="minder-replay-") as folder:
        try:
            play = _play_script if order.program == "script" else _play_reference
            found = play(order, around, Path(folder), end_s, command)
        except ImportError:
            return Finding("not_applicable", "torch is not installed")
    ranks = {order.ranks[index]["RANK"]: [to_json(one) for one in runs] for index, runs in found.items()}
    took = Measurement("replay_time", round(time.monotonic() - begun_s, 3), "s", "none")
    facts = _facts() | ({"model": _model_sha256()} if order.program == "reference" else {})
    return Finding("measured", "", (took,), facts, {"group": order.group, "ranks": ranks})


def _around(order: ReplayOrder, environment: Mapping[str, str]) -> dict[str, str]:
    """What every rank's environment holds besides its own. On a loopback address the ranks of one host meet."""
    local = {"GLOO_SOCKET_IFNAME": "lo"} if order.ranks[0].get("MASTER_ADDR", "").startswith("127.") else {}
    return {"OMP_NUM_THREADS": "1", **local, **environment}


def _play_reference(
    order: ReplayOrder, around: Mapping[str, str], folder: Path, end_s: float, command: Sequence[str]
) -> dict[int, list[RankRun]]:
    """All runs in one process for each rank: they meet once."""
    from minder.edge.probes.replay_model import RankTask, be_deterministic, play_rank

    be_deterministic()
    timeout_s = max(_SPARE_S, end_s - time.monotonic() - _SPARE_S)
    files = {index: tuple(folder / f"{run}-{index}" for run in range(order.runs)) for index in range(len(order.ranks))}
    tasks = [
        RankTask({**around, **order.environment(index, 0)}, order.parallelism, order.steps, paths, order.seed, timeout_s)
        for index, paths in files.items()
    ]
    children = [Forked(lambda task=task: play_rank(task)) for task in tasks]  # type: ignore[misc]
    late = _await(children, end_s)
    return {index: _runs_of(paths, order.steps, late, _how(children[index])) for index, paths in files.items()}


def _runs_of(paths: Sequence[Path], steps: int, late: bool, how: str) -> list[RankRun]:
    """Up to the first that did not finish."""
    found: list[RankRun] = []
    for path in paths:
        found.append(read_run(path, steps, late=late, detail=how))
        if found[-1].end != "finished":
            break
    return found


def _play_script(
    order: ReplayOrder, around: Mapping[str, str], folder: Path, end_s: float, command: Sequence[str]
) -> dict[int, list[RankRun]]:
    """A process for each rank and run, which meet at a store of their own."""
    found: dict[int, list[RankRun]] = {index: [] for index in range(len(order.ranks))}
    for number in range(order.runs):
        children = [_start(order, index, number, around, folder, command) for index in found]
        late = _await(children, end_s)
        for index, runs in found.items():
            status, log = children[index].status(), folder / f"{number}-{index}.log"
            detail = f"{_how(children[index])}{_last_line(log)}"
            runs.append(read_run(folder / f"{number}-{index}", order.steps, ended=status == 0, late=late, detail=detail))
        if late or any(runs[-1].end != "finished" for runs in found.values()):
            break
    return found


def _start(order: ReplayOrder, index: int, number: int, around: Mapping[str, str], folder: Path, command: Sequence[str]) -> Started:
    own = {
        "MINDER_REPLAY": f"{order.steps},{order.seed},{order.layers}",
        "MINDER_REPLAY_FILE": str(folder / f"{number}-{index}"),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    kept = {"MINDER_CHECKPOINT_DIR": str(folder / "checkpoints")}  # not the job's
    return Started(command, {**own, **around, **order.environment(index, number), **kept}, folder / f"{number}-{index}.log")


def _await(children: Sequence[Child], end_s: float) -> bool:
    """Until all have ended, or their time is over: then they are killed. True: it was over before a rank had failed. Where one fails, the
    others of this machine have a moment to notice."""
    failed_s: float | None = None
    while any(child.status() is None for child in children):
        now_s = time.monotonic()
        if failed_s is None and any(child.status() for child in children):
            failed_s = now_s
        if now_s > end_s or (failed_s is not None and now_s > failed_s + _ECHO_S):
            for child in children:
                child.kill()
            return failed_s is None
        time.sleep(_POLL_S)
    return False


def _how(child: Child) -> str:
    status = child.status()
    if not status:
        return ""
    return f"ended by signal {-status}" if status < 0 else f"ended with status {status}"


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f": {lines[-1][:200]}" if lines else ""


def _facts() -> dict[str, str]:
    """What must be equal for two machines to compute the same bits."""
    found = cpu_facts()
    for name in ("torch", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {**found, **_gpu_facts()}


def _model_sha256() -> str:
    return hashlib.sha256(Path(__file__).with_name("replay_model.py").read_bytes()).hexdigest()


def _gpu_facts() -> dict[str, str]:
    """Without a context on a device, which NVML needs none for."""
    try:
        import pynvml

        pynvml.nvmlInit()
        names = {str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index))) for index in range(pynvml.nvmlDeviceGetCount())}
        return {"gpu": ", ".join(sorted(names)), "driver": str(pynvml.nvmlSystemGetDriverVersion())}
    except ImportError:
        return {}
    except pynvml.NVMLError:
        return {}


def main(arguments: Sequence[str] | None = None) -> None:
    run(PROBE, measure, arguments)


if __name__ == "__main__":
    main()
