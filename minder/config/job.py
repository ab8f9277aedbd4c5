"""One watched job, as its job.toml has it: who runs it, where it is watched from, and what may be done to it."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from minder.act.actuators.kubernetes.config import KubernetesConfig
from minder.act.actuators.slurm.config import SlurmConfig
from minder.act.policy.config import PolicyConfig
from minder.act.recovery.pool_size import PoolConfig
from minder.config.tables import (
    DetectorConfig,
    MachineConfig,
    MetricsConfig,
    ReplayConfig,
    SignalsConfig,
    StandbyConfig,
    Table,
    TelemetryConfig,
    TlsConfig,
    token_in,
)
from minder.diagnose.scoring.config import ScoringConfig, scoring_of
from minder.edge.signals.steps import check_step_pattern
from minder.model.errors import BadInputError, ConfigError
from minder.model.names import JOB_NAME
from minder.model.topology import Parallelism, Topology
from minder.wire.client import Endpoint, MachineEndpoints
from minder.wire.machine_tokens import MachineTokens
from minder.wire.tokens import machine_of

__all__ = ["JobConfig"]


class JobConfig(Table):
    """A whole job: who runs it, where it is watched from, and what may be done to it. name: the job's, in the ledger and in metrics.
    machines: a [[machines]] table for each. engine: an [engine] table where Slurm or Kubernetes owns the machines. ranks_per_machine:
    ranks on each. parallelism: sizes of tensor, pipeline, data, expert and context, and rank_order ("tp-dp-pp"); it says who is whose
    peer. environment: variables that the ranks get besides. step_pattern: regular expression with a group `step` for the lines of
    the ranks' logs; the ranks get it as MINDER_STEP_PATTERN. checkpoint_dir: where the job saves; its ranks get it as
    MINDER_CHECKPOINT_DIR. checkpoints: "local" where each machine keeps its own, so that ranks cannot move to others for a trial;
    "memory" where the script uses Checkpointer("memory"): steps are kept at peers.
    min_machines: with no standby left, the job goes on without the replicas of a machine that is evicted, down to so many machines; not
    set: it waits for a standby. checkpoints_any_size: whether the job's checkpoints can be read by another number of ranks; not set: as the
    newest one in checkpoint_dir says, and where none says it the job keeps its size. grow_after_s: a job that is short is started again
    once a standby has been ready for so long; 0: it grows with its next eviction or restart.
    checkpoints_compatible: whether a version of the job's code reads the checkpoints of a later one, for a rollback; not set: not known, so
    that minder takes an update back only where no such checkpoint was written; false: a rollback goes on from one that is older.
    total_steps: the step at which the job is done; a slow machine can cost no more than what is left until then.
    rendezvous_address: this host, as the machines reach it. machine_token_dir: a folder with one file for each machine, called as the
    machine: the token that its agent and launcher want, as `minder token machine` makes it. launcher_token_dir: the same for launchers,
    where they have tokens of their own. agent_token_file, launcher_token_file: a file with one token for all machines, as before; it is
    read for one more version, with a warning. state_dir: where the controller keeps its status, and the ledger if no
    other is named. telemetry, detector, scoring, metrics, signals, tls, pool, standby, replay, policy: a table of its own, below.
    start_deadline_s: so long machines are waited for at the start; what is not ready then is replaced by a standby. At a restart a machine
    whose processes are still on their way gets as long.
    evidence_deadline_s: so long an eviction waits for evidence to be captured. record_dir: write a recording into this folder.
    """

    name: str = Field(pattern=JOB_NAME)
    machines: tuple[MachineConfig, ...] = ()
    engine: SlurmConfig | KubernetesConfig | None = Field(default=None, discriminator="kind")
    ranks_per_machine: int = Field(default=1, ge=1)
    parallelism: dict[str, int | str] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)
    step_pattern: str | None = None
    checkpoint_dir: str | None = None
    checkpoints: Literal["shared", "local", "memory"] = "shared"
    checkpoints_any_size: bool | None = None
    checkpoints_compatible: bool | None = None
    min_machines: int | None = Field(default=None, ge=1)
    grow_after_s: float = Field(default=0.0, ge=0)
    total_steps: int | None = Field(default=None, ge=1)
    rendezvous_address: str = "127.0.0.1"
    machine_token_dir: str | None = None
    launcher_token_dir: str | None = None
    agent_token_file: str | None = None
    launcher_token_file: str | None = None
    state_dir: str | None = None
    telemetry: TelemetryConfig = TelemetryConfig()
    detector: DetectorConfig = DetectorConfig()
    scoring: ScoringConfig = ScoringConfig()
    metrics: MetricsConfig = MetricsConfig()
    signals: SignalsConfig = SignalsConfig()
    tls: TlsConfig = TlsConfig()
    pool: PoolConfig = PoolConfig()
    standby: StandbyConfig = StandbyConfig()
    replay: ReplayConfig = ReplayConfig()
    policy: dict[str, Any] = Field(default_factory=dict)  # minder.act.policy.config.PolicyConfig
    start_deadline_s: float = Field(default=120.0, gt=0)
    evidence_deadline_s: float = Field(default=10.0, gt=0, le=60)
    record_dir: str | None = None

    @field_validator("step_pattern")
    @classmethod
    def _finds_a_step(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                check_step_pattern(pattern)
            except BadInputError as error:
                raise ValueError(str(error)) from error
        return pattern

    @model_validator(mode="after")
    def _has_one_token_each(self) -> JobConfig:
        for folder, file in (("machine_token_dir", "agent_token_file"), ("launcher_token_dir", "launcher_token_file")):
            if getattr(self, folder) and getattr(self, file):
                raise ValueError(f"give {folder} or {file}, not both: {file} is one token for all machines")
        return self

    @model_validator(mode="after")
    def _counts_agree(self) -> JobConfig:
        twice = sorted(name for name, count in Counter(machine.name for machine in self.machines).items() if count > 1)
        if twice:
            raise ValueError(f"machine {twice[0]} stands twice in [[machines]]: name each once")
        if self.engine is not None:  # it says which of them the job runs on
            return self
        if not any(not machine.standby for machine in self.machines):
            raise ValueError("no [[machines]] without `standby = true`: a job needs at least one machine")
        return self

    @model_validator(mode="after")
    def _can_change_its_size(self) -> JobConfig:
        if self.min_machines is None:
            if self.grow_after_s:
                raise ValueError("grow_after_s without min_machines: a job that never goes on with fewer machines has nothing to grow by")
            return self
        if self.checkpoints == "local":
            raise ValueError('min_machines with checkpoints = "local": ranks cannot move where each machine keeps its own checkpoints')
        if self.checkpoints == "memory":
            raise ValueError('min_machines with checkpoints = "memory": what is kept in memory is read by as many ranks as wrote it')
        return self

    def without_launchers(self) -> JobConfig:
        """The same job, only watched."""
        engine = self.engine and self.engine.model_copy(update={"launcher": None})
        machines = tuple(item.model_copy(update={"launcher": None}) for item in self.machines)
        return self.model_copy(update={"machines": machines, "engine": engine})

    def scored_by(self, engine: str | None, ray_address: str | None) -> JobConfig:
        """The same job, scored where the command line says, as far as it says anything. Raises ConfigError."""
        return self.model_copy(update={"scoring": scoring_of(self.scoring, engine, ray_address)})

    @property
    def requeues(self) -> bool:
        """Whether the engine of a job that is only watched may start it again without taking a machine away."""
        return self.engine is not None and self.engine.restart == "requeue"

    def policy_config(self, act: bool) -> PolicyConfig:
        """The [policy] table; evictions stay a dry run unless `act`. Raises ConfigError that names the key."""
        return PolicyConfig.from_mapping({**self.policy, "dry_run": not act})

    def topology(self) -> Topology:
        """Ranks and machines of the first generation. Raises BadInputError if the counts disagree."""
        active = tuple(machine.name for machine in self.machines if not machine.standby)
        if self.min_machines is not None and self.min_machines > len(active):
            raise BadInputError(f"min_machines = {self.min_machines}, but the job has {len(active)} machines: give so many or fewer")
        values: dict[str, Any] = dict(self.parallelism)
        values.setdefault("data", len(active) * self.ranks_per_machine // max(1, _others(values)))
        try:
            parallelism = Parallelism(**values)
        except TypeError as error:
            raise ConfigError(f"[parallelism]: {error}; known keys: tensor, pipeline, data, expert, context, rank_order") from error
        domains = {
            machine.name: {
                key: value for key, value in (("rack", machine.rack), ("switch", machine.switch), ("block", machine.block)) if value
            }
            for machine in self.machines
        }
        standbys = tuple(machine.name for machine in self.machines if machine.standby)
        return Topology(active, self.ranks_per_machine, parallelism, standbys, domains)

    def endpoints(self) -> list[MachineEndpoints]:
        """Where agents and launchers are, each with the token of its own machine. Raises ConfigError that names the key."""
        agents = MachineTokens("machine_token_dir", self.machine_token_dir, "agent_token_file", self.agent_token_file)
        launchers = MachineTokens("launcher_token_dir", self.launcher_token_dir, "launcher_token_file", self.launcher_token_file)
        launchers = launchers if launchers.is_given else agents
        return [
            MachineEndpoints(
                machine.name,
                Endpoint(machine.agent.rstrip("/"), agents.of(machine.name)) if machine.agent else None,
                Endpoint(machine.launcher.rstrip("/"), launchers.of(machine.name)) if machine.launcher else None,
            )
            for machine in self.machines
        ]

    def shared_tokens(self) -> list[str]:
        """Keys that name one token for all machines. Raises ConfigError."""
        named = {"agent_token_file": self.agent_token_file}
        if any(machine.launcher for machine in self.machines):
            named["launcher_token_file"] = self.launcher_token_file
        return [key for key, path in named.items() if path and machine_of(token_in(key, path)) is None]


def _others(values: dict[str, Any]) -> int:
    product = 1
    for axis in ("tensor", "pipeline", "context"):
        size = values.get(axis, 1)
        product *= size if isinstance(size, int) else 1
    return product
