"""The same job, lab and fault under a launcher that restarts ranks: what minder is compared with.

torchrun: `--max-restarts` with elastic --nnodes. ft_launcher: of NVIDIA's nvidia-resiliency-ext, torchrun with a monitor beside each rank;
the script sends it a heartbeat after every step, and it ends a rank that sends none for `HEARTBEAT_S` (its own default is 45 minutes).

One launcher per machine, in the machine's own namespace and cgroup; one spare node more than the job needs is not possible
without minder's standby, so the job may shrink by one (--nnodes 5:6). The rendezvous store is the first machine's, as torchrun
does by itself; TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 is set, since without it torch 2.13 does not recover from a lost member.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from minder.model.errors import LabError
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.stage import training_script
from minder.simulate.lab.faults import inject
from minder.simulate.lab.lab import Lab
from minder.simulate.lab.machine import LabMachine
from minder.wire.tokens import write_token

__all__ = ["LAUNCHERS", "ElasticRow", "run_elastic"]

LAUNCHERS = {"torchrun": "torch.distributed.run", "ft_launcher": "nvidia_resiliency_ext.fault_tolerance.launcher"}
HEARTBEAT_S = 10.0
_MONITORED = Path(__file__).parent / "jobs" / "ft_train.py"
_PORT = 29400
_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class ElasticRow:
    """downtime_s: from the fault to the first new step; None: no new step within the limit."""

    fault: str
    seed: int
    downtime_s: float | None
    steps_lost: int | None
    limit_s: float


def run_elastic(launcher: str, options: DemoOptions, out: Path, limit_s: float) -> ElasticRow:
    """Run, inject, and wait for the first step that is newer than the fault. launcher: a name of LAUNCHERS, which is installed."""
    train = out / "train"
    train.mkdir(parents=True, exist_ok=True)
    write_token(out / "token")
    with Lab(options.machines, 0, root_dir=out / "machines", mode=options.mode) as lab:
        for machine in lab.machines:
            _start(launcher, lab, machine, options, train)
        if not _wait(train, lambda last: last is not None and last["step"] >= options.injected_at, 180.0):
            raise LabError(f"the job under {launcher} did not reach step {options.injected_at}: see {out}")
        for machine in lab.machines:
            _register(machine, _script(launcher))
        record = inject(lab, options.fault, options.machine)
        _wait(train, lambda last: _first_after(train, record.time_s) is not None, limit_s)
        first_s = _first_after(train, record.time_s)
        lines = _lines(train)
    if first_s is None:
        return ElasticRow(options.fault, options.seed, None, None, limit_s)
    return ElasticRow(options.fault, options.seed, first_s - record.time_s, len(lines) - len({line["step"] for line in lines}), limit_s)


def _script(launcher: str) -> Path:
    return _MONITORED if launcher == "ft_launcher" else training_script()


def _start(launcher: str, lab: Lab, machine: LabMachine, options: DemoOptions, train: Path) -> None:
    first = lab.machines[0]
    command = [sys.executable, "-m", LAUNCHERS[launcher], f"--nnodes={options.machines - 1}:{options.machines}", "--nproc-per-node=1"]
    command += ["--rdzv-backend=c10d", f"--rdzv-endpoint={first.address}:{_PORT}", f"--rdzv-id={lab.run_id}"]
    command += [f"--rdzv-conf=is_host={int(machine is first)},join_timeout=120,last_call_timeout=5"]
    command += ["--max-restarts=10", "--monitor-interval=0.2"]
    if launcher == "ft_launcher":
        command += [f"--ft-rank-heartbeat-timeout={HEARTBEAT_S}", "--ft-initial-rank-heartbeat-timeout=120"]
        command += ["--ft-workload-check-interval=1"]
    command += [f"--local-addr={machine.address}", str(_script(launcher)), "--output", str(train), "--steps", str(options.total_steps)]
    command += ["--seed", str(options.seed), "--step-seconds", str(options.step_seconds), "--no-sync"]
    environment = {
        "GLOO_SOCKET_IFNAME": machine.place.data_interface,
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    machine.spawn(command, environment, machine.place.directory / f"{launcher}.log")


def _register(machine: LabMachine, script: Path) -> None:
    """The injector finds a machine's training processes in the registry that minder's launcher would keep."""
    workers = []
    for pid in machine.pids():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if os.fsencode(str(script)) in words and not {name.encode() for name in LAUNCHERS.values()} & set(words):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            rank = next((int(item[5:]) for item in variables if item.startswith(b"RANK=")), None)
            workers.append({"slot": len(workers), "pid": pid, "rank": rank, "heartbeat": "", "log": ""})
    folder = machine.run_dir / "jobs"
    folder.mkdir(parents=True, exist_ok=True)
    entry = {"job": "elastic", "machine": machine.name, "generation": 0, "launcher_pid": 0, "workers": workers}
    (folder / "elastic.json").write_text(json.dumps(entry))


def _wait(train: Path, reached, seconds: float) -> bool:  # type: ignore[no-untyped-def]
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        if reached(_last(train)):
            return True
        time.sleep(0.1)
    return False


def _first_after(train: Path, fault_s: float) -> float | None:
    """When the first step after the pause ended; None while there was no pause yet. torchrun's restart count is each agent's own."""
    times = [line["time"] for line in _lines(train)]
    pauses = (time_s for before_s, time_s in pairwise(times) if time_s > fault_s and time_s - before_s > _PAUSE_S)
    return next(pauses, None)


def _lines(train: Path) -> list[dict]:  # type: ignore[type-arg]
    try:
        return [json.loads(line) for line in (train / "losses.jsonl").read_text().splitlines() if line.endswith("}")]
    except OSError:
        return []


def _last(train: Path) -> dict | None:  # type: ignore[type-arg]
    lines = _lines(train)
    return lines[-1] if lines else None
