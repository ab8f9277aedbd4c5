"""What strikes what is around the machines: controllers, their network and clock, the ledger's disk, Prometheus; and a person's orders."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from chaos_lab.machines import RESTART_S, Done, Injector, later, nothing, wrong_clock
from chaos_lab.stage import ChaosStage
from minder.model.errors import LabError
from minder.simulate.demo.prometheus import LabPrometheus
from minder.simulate.demo.stage import training_script
from minder.simulate.lab.machine import LabMachine

__all__ = ["AROUND", "minder_command"]

_TAKEOVER_S = 60.0
_COMMAND_S = 180.0
Machines = tuple[LabMachine, ...]


def controller_killed(stage: ChaosStage, machines: Machines, step: int) -> Done:
    name = _leader(stage)
    stage.wanted.discard(name)
    stage.controllers[name].kill()
    stage.controllers[name].wait()
    later(RESTART_S, lambda: stage.start_one(name))
    return f"controller {name}, which led, was killed", nothing


def controller_stopped(stage: ChaosStage, machines: Machines, step: int) -> Done:
    """It wakes up when another leads."""
    name = _leader(stage)
    process = stage.controllers[name]
    process.send_signal(signal.SIGSTOP)

    def wake() -> None:
        end_s = time.monotonic() + _TAKEOVER_S
        while stage.leader() in (name, None) and time.monotonic() < end_s:
            time.sleep(0.2)
        time.sleep(1.0)
        process.send_signal(signal.SIGCONT)

    threading.Thread(target=wake, daemon=True).start()
    return f"controller {name}, which led, was stopped", nothing


def controller_network(stage: ChaosStage, machines: Machines, step: int) -> Done:
    """Every frame that the controller's host sends to the machines' network is larger than the bucket: none arrives, silently."""
    assert stage.lab.network is not None
    bridge = stage.lab.network.management_bridge
    _tc("replace", bridge, *["tbf", "rate", "1kbit", "burst", "20", "latency", "1ms"])
    return f"nothing leaves {bridge}", partial(_tc, "delete", bridge)


def controller_clock(stage: ChaosStage, machines: Machines, step: int) -> Done:
    """The one that waits is started again with a clock that is two minutes ahead, and then the one that leads ends."""
    leads = _leader(stage)
    name = next(other for other in stage.controllers if other != leads)
    stage.stop_one(name)
    stage.start_one(name, wrong_clock(120))
    time.sleep(3.0)
    stage.stop_one(leads)
    later(RESTART_S, lambda: stage.start_one(leads))

    def undo() -> None:
        stage.stop_one(name)
        stage.start_one(name)

    return f"controller {name} leads with a clock that is 120 s ahead", undo


def ledger_full(stage: ChaosStage, machines: Machines, step: int) -> Done:
    ballast = _small_disk(stage) / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as stream:
        while stream.write(bytes(1 << 16)):
            continue
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as stream:
        while stream.write(bytes(512)):
            continue
    return f"no room in {stage.disk}", partial(ballast.unlink, missing_ok=True)


def ledger_errors(stage: ChaosStage, machines: Machines, step: int) -> Done:
    """No file of a controller may grow: each write fails with an error of its own (EFBIG), as a broken disk's does. A server ends every
    connection to the ledger instead, new ones too."""
    if stage.size.ledger:
        return _cut_connections(stage)
    pids = [process.pid for process in stage.controllers.values() if process.poll() is None]
    before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    for pid in pids:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[pid][1]))

    def undo() -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, before[pid])

    return f"processes {pids} can write no file", undo


def ledger_read_only(stage: ChaosStage, machines: Machines, step: int) -> Done:
    """A disk that came back read only: controllers end with it, are started on it, and find it writable again."""
    _small_disk(stage)
    for name in list(stage.controllers):
        stage.stop_one(name)
    stage.close_leases()
    _remount(stage, "ro")
    for name in list(stage.controllers):
        stage.start_one(name)
    return f"{stage.disk} is read only", partial(_remount, stage, "rw")


def _small_disk(stage: ChaosStage) -> Path:
    """Raises LabError where the ledger is on no disk of this lab: the host's must not be filled."""
    if stage.size.ledger or not stage.disk.is_mount():
        raise LabError("the ledger is not on a disk of this lab")
    return stage.disk


def _cut_connections(stage: ChaosStage) -> Done:
    import psycopg

    dsn, healed = stage.size.ledger.replace("+psycopg", ""), threading.Event()
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

    def cut() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            while not healed.wait(0.1):
                connection.execute(end)

    threading.Thread(target=cut, daemon=True).start()
    return "the server ends every connection to the ledger", healed.set


def prometheus_killed(stage: ChaosStage, machines: Machines, step: int) -> Done:
    server = _prometheus(stage)
    _process(server).kill()
    _process(server).wait()
    return "Prometheus was killed", server.start


def prometheus_late(stage: ChaosStage, machines: Machines, step: int) -> Done:
    """It runs for a tenth of the time: answers take seconds."""
    pid, healed = _process(_prometheus(stage)).pid, threading.Event()

    def limp() -> None:
        while not healed.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                healed.wait(3.0)
                os.kill(pid, signal.SIGCONT)
            healed.wait(0.3)

    threading.Thread(target=limp, daemon=True).start()
    return "Prometheus runs for a tenth of the time", healed.set


def update(stage: ChaosStage, machines: Machines, step: int, *, urgent: bool = False) -> Done:
    """The lab's script with a comment more: it computes the same."""
    folder = stage.folder / "code" / str(step)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("corpus", "model", "plain"):
        shutil.copy(training_script().with_name(f"{name}.py"), folder)
    (folder / training_script().name).write_text(f"{training_script().read_text()}\n# as of step {step}\n")
    words = ["job", "update", stage.job, "--code", str(folder), "--note", f"step {step}"]
    threading.Thread(target=minder_command, args=(stage, *words, *(["--urgent"] if urgent else [])), daemon=True).start()
    return f"version of step {step}{', urgent' if urgent else ''}", nothing


def evict_healthy(stage: ChaosStage, machines: Machines, step: int) -> Done:
    said = minder_command(stage, "machine", "evict", machines[0].name, "--job", stage.job, "--reason", "the judge is tried")
    return said or "ordered out", nothing


def minder_command(stage: ChaosStage, *words: str) -> str:
    """`minder ...` on the job's ledger; what it said, "" where it did as it was asked."""
    command = [sys.executable, "-m", "minder", *words, "--ledger", stage.ledger_url]
    environment = os.environ | stage.lab.mark | {"MINDER_STATE_DIR": str(stage.disk)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except subprocess.TimeoutExpired:
        return f"minder {words[0]} {words[1]} did not end"
    said = "" if done.returncode == 0 else (done.stdout + done.stderr).strip()
    with (stage.folder / "commands.log").open("a") as log:
        log.write(f"{time.time():.1f} {' '.join(words)}: {done.returncode} {done.stdout}{done.stderr}\n")
    return said


def _leader(stage: ChaosStage) -> str:
    end_s = time.monotonic() + _TAKEOVER_S
    while (name := stage.leader()) is None:
        if time.monotonic() > end_s:
            raise LabError(f"no controller of ours has led the job for {_TAKEOVER_S:.0f} s")
        time.sleep(0.2)
    return name


def _prometheus(stage: ChaosStage) -> LabPrometheus:
    if stage.prometheus is None:
        raise LabError("this lab has no Prometheus")
    return stage.prometheus


def _process(server: LabPrometheus) -> subprocess.Popen[bytes]:
    if server._process is None:
        raise LabError("Prometheus does not run")
    return server._process


def _tc(verb: str, device: str, *words: str) -> None:
    subprocess.run(["tc", "qdisc", verb, "dev", device, "root", *words], check=True, capture_output=True)


def _remount(stage: ChaosStage, mode: str) -> None:
    done = subprocess.run(["mount", "-o", f"remount,{mode}", str(stage.disk)], check=False, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{stage.disk} cannot be mounted {mode}: {done.stderr.strip()}")


AROUND: Mapping[str, Injector] = {
    "controller-killed": controller_killed,
    "controller-stopped": controller_stopped,
    "controller-network": controller_network,
    "controller-clock": controller_clock,
    "ledger-full": ledger_full,
    "ledger-errors": ledger_errors,
    "ledger-read-only": ledger_read_only,
    "prometheus-killed": prometheus_killed,
    "prometheus-late": prometheus_late,
    "evict-healthy": evict_healthy,
    "update": update,
    "update-urgent": partial(update, urgent=True),
}
