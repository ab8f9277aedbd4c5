"""The engine of a configuration: the machines that it gives the job, and the parts of a controller that speak with it."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from minder.act.actuators.contract import Engine
from minder.act.actuators.kubernetes.calls import Calls, KubernetesCalls
from minder.act.actuators.kubernetes.config import KubernetesConfig
from minder.act.actuators.kubernetes.engine import KubernetesEngine
from minder.act.actuators.kubernetes.places import find_places
from minder.act.actuators.slurm.commands import Commands, SlurmCommands
from minder.act.actuators.slurm.config import SlurmConfig
from minder.act.actuators.slurm.engine import SlurmEngine
from minder.act.controller.engine.watch import EngineWatch
from minder.act.controller.engine.work import DRAIN, RELEASE, REQUEUE, EngineWork, drain_operations
from minder.config import JobConfig, MachineConfig
from minder.model.clock import Clock, SystemClock
from minder.model.decision import ActionResult
from minder.model.errors import ActuatorError, BadInputError, ConfigError
from minder.record.incidents import Ledger, kinds

__all__ = ["EngineParts", "open_engine", "place_machines", "return_machine", "wire_engine"]


Asked = Commands | Calls  # how the scheduler is asked: Slurm's commands or Kubernetes' API
Confirm = Callable[[], None]


def open_engine(
    config: JobConfig, clock: Clock | None = None, asked: Asked | None = None, confirm: Confirm = lambda: None
) -> Engine | None:
    """What owns the job's machines; None without an [engine] table. Nothing is asked yet. Raises ConfigError without a job id.

    confirm: called last before every change; raises if another controller leads.
    """
    if config.engine is None:
        return None
    if isinstance(config.engine, KubernetesConfig):
        return _open_kubernetes(config.engine, clock, asked, confirm)
    return _open_slurm(config.engine, clock, asked, _job_id(config.engine), confirm)


def _open_for_return(config: JobConfig, asked: Asked | None) -> Engine:
    """To give machines back the job need not be there any more. Raises ConfigError without an [engine] table."""
    if config.engine is None:
        raise ConfigError("the configuration has no [engine]: `minder machine return NAME` without --config ends the bar alone")
    if isinstance(config.engine, KubernetesConfig):
        return _open_kubernetes(config.engine, None, asked)
    return _open_slurm(config.engine, None, asked, config.engine.job or 1)


def _open_slurm(engine: SlurmConfig, clock: Clock | None, asked: Asked | None, job_id: int, confirm: Confirm = lambda: None) -> SlurmEngine:
    commands = cast(Commands, asked or SlurmCommands(engine.deadline_s, engine.conf))
    return SlurmEngine(job_id, commands, (clock or SystemClock()).now_s, engine.max_drained, confirm, engine.standby_script)


def _open_kubernetes(
    engine: KubernetesConfig, clock: Clock | None, asked: Asked | None, confirm: Confirm = lambda: None
) -> KubernetesEngine:
    return KubernetesEngine(engine, _calls(engine, asked), (clock or SystemClock()).now_s, confirm)


def _calls(engine: KubernetesConfig, asked: Asked | None) -> Calls:
    return cast(Calls, asked or KubernetesCalls(engine.deadline_s, engine.kubeconfig, engine.context))


def place_machines(config: JobConfig, *, only_watch: bool = False, asked: Asked | None = None) -> JobConfig:
    """The configuration with the machines that its engine says; unchanged without an engine.

    `minder run`: the first `engine.machines` nodes of the allocation, or of the job's pods, run ranks, the others are standbys.
    only_watch: every one of them is in the job; those of engine.nodes and of [[machines]] besides are where it may come to run.
    Raises ConfigError where the scheduler's nodes and the configuration disagree, ActuatorError where it does not answer.
    """
    if config.engine is None:
        return config
    if isinstance(config.engine, KubernetesConfig):
        return _place_in_kubernetes(config, config.engine, only_watch, asked)
    return _place_in_slurm(config, config.engine, only_watch, asked)


def _place_in_kubernetes(config: JobConfig, engine: KubernetesConfig, only_watch: bool, asked: Asked | None) -> JobConfig:
    places = find_places(engine, _calls(engine, asked), around=only_watch)
    named = {machine.name: machine for machine in config.machines}
    found = {place.node: MachineConfig(name=place.node, agent=place.agent, launcher=place.launcher) for place in places}
    members = [place.node for place in places if place.is_member]
    if only_watch:
        members = members or list(named) or list(found)  # it waits for its nodes: any of them may be its own
    return _placed(config, members, {**found, **named} if only_watch else {name: named.get(name, found[name]) for name in members})


def _placed(config: JobConfig, members: Sequence[str], known: Mapping[str, MachineConfig]) -> JobConfig:
    """members: machines of the job, those that run ranks first; the others that are known stand by."""
    assert config.engine is not None
    full = config.engine.machines or len(members)
    wanted = _present(config, full, len(members))
    if len(members) < wanted:
        raise ConfigError(f"engine.machines is {wanted}, but the job has {len(members)} machines: submit it with {wanted} or more")
    inside = list(members[:wanted])
    names = [*inside, *(name for name in known if name not in inside)]
    missing = next((name for name in names if known[name].agent is None), None)
    if missing is not None:
        mend = 'name it in [[machines]], or give engine.agent like "http://{node_ip}:9401"'
        raise ConfigError(f"node {missing} of the job has no address: {mend}")
    machines = tuple(known[name].model_copy(update={"standby": name not in inside}) for name in names)
    placed = _short(config, wanted < full).model_copy(update={"machines": machines})
    try:
        placed.topology()
    except BadInputError as error:
        raise ConfigError(f"{wanted} machines of the job run ranks (engine.machines): {error}") from error
    return placed


def _present(config: JobConfig, full: int, members: int) -> int:
    """Machines that run ranks now: fewer than at full size where the job may go on with so few, as after an eviction without a standby."""
    return members if config.min_machines is not None and config.min_machines <= members < full else full


def _short(config: JobConfig, is_short: bool) -> JobConfig:
    """The number of replicas follows from the machines that are there."""
    parallelism = {axis: size for axis, size in config.parallelism.items() if axis != "data"}
    return config.model_copy(update={"parallelism": parallelism}) if is_short else config


def _place_in_slurm(config: JobConfig, slurm: SlurmConfig, only_watch: bool, asked: Asked | None) -> JobConfig:
    engine = _open_slurm(slurm, None, asked, _job_id(slurm))
    job = engine.job.show()
    if job.is_over:
        raise ConfigError(f"engine.job: Slurm job {job.id} is over ({job.state})")
    named = {machine.name: machine for machine in config.machines}
    if job.state == "PENDING":
        if not only_watch:
            raise ConfigError(f"engine.job: Slurm job {job.id} waits for its nodes ({job.reason}): run this inside the job's allocation")
        members: tuple[str, ...] = tuple(named)[: job.nodes_wanted]
    else:
        members = engine.nodes.expand(job.node_list)
    full = slurm.machines or len(members)
    wanted = full if only_watch else _present(config, full, len(members))
    if len(members) < wanted:
        raise ConfigError(
            f"engine.machines is {wanted}, but Slurm job {job.id} has {len(members)} nodes: submit it with -N{wanted} or more"
        )
    spares = members[wanted:]
    around = [*engine.nodes.expand(slurm.nodes or ""), *named] if only_watch else []
    names = list(dict.fromkeys([*members, *around]))
    standbys = {*spares, *(name for name in names if name not in members)}
    machines = tuple(_machine(slurm, named.get(name), name, name in standbys) for name in names)
    placed = _short(config, wanted < full).model_copy(update={"machines": machines, **({} if only_watch else _meeting_place(config))})
    try:
        placed.topology()
    except BadInputError as error:
        raise ConfigError(f"{wanted} nodes of Slurm job {job.id} run ranks (engine.machines): {error}") from error
    return placed


def _retest(config: JobConfig, machine: str) -> None:
    """Run the site's test of a machine that is to be given back. Raises ActuatorError if it fails or takes too long."""
    if config.engine is None or not config.engine.retest:
        return
    words = [word.replace("{node}", machine) for word in config.engine.retest]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=config.engine.retest_deadline_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ActuatorError(f"{machine} stays out: its test `{shlex.join(words)}` did not end in time") from error
    except OSError as error:
        raise ActuatorError(f"{machine} stays out: its test `{shlex.join(words)}` cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        output = " ".join((done.stderr or done.stdout).split())[-300:]
        raise ActuatorError(f"{machine} stays out: its test `{shlex.join(words)}` failed with status {done.returncode}: {output}")


@dataclass(slots=True)
class EngineParts:
    """work: what an eviction asks of the engine, None in a dry run. watch: what it says of machines and job."""

    watch: EngineWatch
    work: EngineWork | None
    clock: Clock

    def close(self) -> None:
        self.watch.close()
        if self.work is not None:
            self.work.close()


def wire_engine(config: JobConfig, ledger: Ledger, clock: Clock, *, act: bool, restarts: bool) -> EngineParts | None:
    """None without an [engine]. restarts: the engine starts the job again elsewhere; otherwise its own spares take over."""
    engine = open_engine(config, clock, confirm=ledger.check_fence)
    if engine is None or config.engine is None:
        return None
    steps = (DRAIN, REQUEUE) if restarts else (DRAIN, RELEASE) if config.engine.release else (DRAIN,)
    requeues = config.engine.restart == "requeue"
    watch = EngineWatch(engine, [machine.name for machine in config.machines], restarts=restarts and requeues)
    work = EngineWork(engine, ledger, config.name, clock, steps) if act else None
    if work is not None:
        work.restarts = watch.restarts
    return EngineParts(watch, work, clock)


def return_machine(config: JobConfig, ledger: Ledger, machine: str, asked: Asked | None = None) -> ActionResult:
    """Test a machine and let its engine use it again, if it was minder that took it away. Written down before it is done.

    Raises ActuatorError where the test fails, where something else than minder drained the machine, or where the engine does not answer.
    """
    engine = _open_for_return(config, asked)
    known = drain_operations(ledger, machine)
    _retest(config, machine)
    earlier = [event for event in ledger.events(kinds=[kinds.INTENT]) if event.payload.get("action") == "return"]
    mine = [str(event.operation_id) for event in earlier if machine in event.payload.get("machines", ())]
    operation_id = next((name for name in mine if ledger.result(name) is None), f"return-{machine}-{len(mine) + 1}")
    ledger.intend(operation_id, {"action": "return", "machines": [machine], "engine": engine.name}, job=config.name)
    result = engine.uncordon(machine, operation_id, known)
    ledger.complete(operation_id, result)
    if result.outcome in ("failed", "ambiguous"):
        raise ActuatorError(result.detail)
    return result


def _machine(engine: SlurmConfig, named: MachineConfig | None, name: str, standby: bool) -> MachineConfig:
    if named is not None:
        return named.model_copy(update={"standby": standby})
    if engine.agent is None:
        raise ConfigError(
            f'node {name} of the Slurm job has no address: name it in [[machines]], or give engine.agent like "http://{{node}}:9401"'
        )
    launcher = engine.launcher.replace("{node}", name) if engine.launcher else None
    return MachineConfig(name=name, standby=standby, agent=engine.agent.replace("{node}", name), launcher=launcher)


def _meeting_place(config: JobConfig) -> dict[str, str]:
    """Where the ranks of a controller inside the allocation meet, if the configuration says nothing: this node's own address."""
    node = os.environ.get("SLURMD_NODENAME")
    if node is None or "rendezvous_address" in config.model_fields_set:
        return {}
    try:
        return {"rendezvous_address": socket.gethostbyname(node)}
    except OSError as error:
        raise ConfigError(f"the address of this node, {node}, cannot be found ({error}): give rendezvous_address") from error


def _job_id(engine: SlurmConfig) -> int:
    if engine.job is not None:
        return engine.job
    job_id = os.environ.get("SLURM_JOB_ID", "")
    if not job_id.isdigit():
        raise ConfigError("engine.job is missing: give the Slurm job's id, or run this inside the job ($SLURM_JOB_ID)")
    return int(job_id)
