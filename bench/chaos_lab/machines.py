"""What strikes a machine, or a process on it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from chaos_lab.stage import ChaosStage
from minder.model.errors import LabError
from minder.simulate.lab.faults import inject
from minder.simulate.lab.machine import LabMachine
from minder.simulate.lab.processes import end_processes
from minder.simulate.lab.workers import training_workers

__all__ = ["FAKETIME", "INJECTORS", "Done", "Injector", "power_on"]

Done = tuple[str, Callable[[], None]]  # what was done, and what undoes it
Injector = Callable[[ChaosStage, tuple[LabMachine, ...], int], Done]  # (stage, machines, the job's step)

_AHEAD = 6  # steps, until a script's own fault comes
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
_REAL_SLEEP = Path(__file__).parent / "real_sleep"
_UPGRADED = Path(__file__).with_name("upgraded")
RESTART_S = 2.0  # after so long a supervisor starts again what died


def nothing() -> None:
    return


def of_lab(kind: str) -> Injector:
    """A fault that the lab knows."""

    def strike(stage: ChaosStage, machines: tuple[LabMachine, ...], step: int) -> Done:
        if kind == "machine-lost":
            stage.lost.add(machines[0].name)
        done = inject(stage.lab, kind, machines[0].place.index)
        return done.detail, done.undo

    return strike


def of_script(kind: str) -> Injector:
    """A fault that the training script has at a step that is still to come, at the rank of the machine."""

    def strike(stage: ChaosStage, machines: tuple[LabMachine, ...], step: int) -> Done:
        rank = f":{training_workers(machines[0])[0].rank}" if machines else ""
        (stage.output / f"fault-{kind}").unlink(missing_ok=True)
        (stage.output / "fault").write_text(f"{kind}@{step + _AHEAD}{rank}")
        return f"{kind}@{step + _AHEAD}{rank}", partial((stage.output / "fault").unlink, missing_ok=True)

    return strike


def busy(stage: ChaosStage, machines: tuple[LabMachine, ...], step: int) -> Done:
    worker = training_workers(machines[0])[0]
    os.kill(worker.pid, signal.SIGRTMIN)
    return f"rank {worker.rank} computes for ever", nothing


def launcher_killed(stage: ChaosStage, machines: tuple[LabMachine, ...], step: int) -> Done:
    (machine,) = machines
    _launcher(machine, signal.SIGKILL)
    later(RESTART_S, lambda: stage.start_launcher(machine))
    return "the launcher was killed", nothing


def launcher_stopped(stage: ChaosStage, machines: tuple[LabMachine, ...], step: int) -> Done:
    pid = _launcher(machines[0], signal.SIGSTOP)
    return "the launcher was stopped", partial(_send, pid, signal.SIGCONT)


def cache_killed(stage: ChaosStage, machines: tuple[LabMachine, ...], step: int) -> Done:
    pids = caches_of(machines[0])
    for pid in pids:
        _send(pid, signal.SIGKILL)
    return f"caches {pids} were killed", nothing


def cache_stopped(stage: ChaosStage, machines: tuple[LabMachine, ...], step: int) -> Done:
    pids = caches_of(machines[0])
    for pid in pids:
        _send(pid, signal.SIGSTOP)
    return f"caches {pids} were stopped", lambda: [_send(pid, signal.SIGCONT) for pid in pids] and None


def pair_lost(stage: ChaosStage, machines: tuple[LabMachine, ...], step: int) -> Done:
    stage.lost.update(machine.name for machine in machines)
    done = [inject(stage.lab, "machine-lost", machine.place.index) for machine in machines]
    return "; ".join(f"{item.machine}: {item.detail}" for item in done), lambda: [item.undo() for item in done] and None


def backup_cache(stage: ChaosStage, machines: tuple[LabMachine, ...], step: int) -> Done:
    owner, backup = machines
    stage.lost.add(owner.name)
    done = inject(stage.lab, "machine-lost", owner.place.index)
    time.sleep(0.5)
    said, _ = cache_killed(stage, (backup,), step)
    return f"{done.detail}; {said}", done.undo


def agent_lost(stage: ChaosStage, machines: tuple[LabMachine, ...], step: int) -> Done:
    done = inject(stage.lab, "agent-lost", machines[0].place.index)
    return done.detail, partial(stage.restart_agent, machines[0])


def agent_stopped(stage: ChaosStage, machines: tuple[LabMachine, ...], step: int) -> Done:
    agent = machines[0].agent
    if agent is None or agent.poll() is not None:
        raise LabError(f"{machines[0].name} runs no agent")
    _send(agent.pid, signal.SIGSTOP)
    return "the agent was stopped", partial(_send, agent.pid, signal.SIGCONT)


def agent_upgrade(stage: ChaosStage, machines: tuple[LabMachine, ...], step: int) -> Done:
    paths = os.pathsep.join([str(_UPGRADED), os.environ.get("PYTHONPATH", "")])
    stage.agent_environment[machines[0].name] = {"PYTHONPATH": paths, "CHAOS_VERSION": "0.1.99"}
    stage.restart_agent(machines[0])
    return "the agent is version 0.1.99 now", nothing


def agent_clock(stage: ChaosStage, machines: tuple[LabMachine, ...], step: int) -> Done:
    (machine,) = machines
    before = stage.agent_environment.get(machine.name)
    stage.agent_environment[machine.name] = {**(before or {}), **wrong_clock(90)}
    stage.restart_agent(machine)

    def undo() -> None:
        stage.agent_environment[machine.name] = before or {}
        stage.restart_agent(machine)

    return "the agent's clock is 90 s ahead", undo


def standby_stopped(stage: ChaosStage, machines: tuple[LabMachine, ...], step: int) -> Done:
    return launcher_stopped(stage, machines, step)


def wrong_clock(seconds: int) -> dict[str, str]:
    """The environment of one process whose wall clock is ahead by so much; its monotonic clock is right. Raises LabError."""
    if not Path(FAKETIME).exists():
        raise LabError(f"no clock can be wrong here: {FAKETIME} is not there (Debian: apt-get install libfaketime)")
    path = os.pathsep.join([str(_REAL_SLEEP), *filter(None, [os.environ.get("PYTHONPATH")])])
    clock = {"LD_PRELOAD": FAKETIME, "FAKETIME": f"+{seconds}", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}
    return {**clock, "PYTHONPATH": path}


def caches_of(machine: LabMachine) -> list[int]:
    found = []
    for pid in machine.pids():
        with contextlib.suppress(OSError):
            if b"\0cache\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def power_on(stage: ChaosStage, machine: LabMachine) -> str:
    """What does not run on it any more is started. What still runs and may be stopped goes on."""
    started = []
    for pid in machine.pids():
        _send(pid, signal.SIGCONT)
    if machine.agent is None or machine.agent.poll() is not None:
        stage.restart_agent(machine)
        started.append("agent")
    if machine.launcher is None or machine.launcher.poll() is not None:
        end_processes(lambda: [pid for pid in machine.pids() if machine.agent is None or pid != machine.agent.pid])  # a boot leaves nothing
        stage.start_launcher(machine)
        started.append("launcher")
    return " and ".join(started) or "nothing"


def later(seconds: float, act: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


def _launcher(machine: LabMachine, number: signal.Signals) -> int:
    launcher = machine.launcher
    if launcher is None or launcher.poll() is not None:
        raise LabError(f"{machine.name} runs no launcher")
    launcher.send_signal(number)
    if number == signal.SIGKILL:
        launcher.wait()
    return launcher.pid


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


INJECTORS: Mapping[str, Injector] = {
    **{kind: of_lab(kind) for kind in ("hang", "crash", "crash-sticky", "xid", "slow-cpu", "slow-link", "dead-link", "oom")},
    **{kind: of_lab(kind) for kind in ("machine-lost", "disk-full")},
    "standby-lost": of_lab("machine-lost"),
    "standby-link": of_lab("dead-link"),
    "exception": of_script("exception"),
    "nan": of_script("nan"),
    "busy": busy,
    "launcher-killed": launcher_killed,
    "launcher-stopped": launcher_stopped,
    "cache-killed": cache_killed,
    "cache-stopped": cache_stopped,
    "pair-lost": pair_lost,
    "backup-cache": backup_cache,
    "standby-stopped": standby_stopped,
    "agent-lost": agent_lost,
    "agent-stopped": agent_stopped,
    "agent-upgrade": agent_upgrade,
    "agent-clock": agent_clock,
}
