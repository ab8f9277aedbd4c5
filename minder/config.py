"""The typed configuration of one watched job: `job.toml` of `minder run` and `minder watch`. Unknown keys are errors."""

from __future__ import annotations

import os
import re
import ssl
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from minder.act.actuators.kubernetes.config import KubernetesConfig
from minder.act.actuators.slurm.config import SlurmConfig
from minder.act.controller.replaying import ReplaySettings
from minder.act.policy.config import PolicyConfig
from minder.act.recovery.pool_size import PoolConfig
from minder.diagnose.scoring.config import ScoringConfig, scoring_of
from minder.edge.probes.contract import ALONE, find_program
from minder.edge.signals.steps import check_step_pattern
from minder.ingest.sources.settings import PrometheusSettings, anchored
from minder.model.errors import BadInputError, ConfigError
from minder.model.names import JOB_NAME
from minder.model.resources import default_state_dir
from minder.model.topology import Parallelism, Topology
from minder.wire.addresses import is_loopback, parse_address
from minder.wire.client import Endpoint, MachineEndpoints
from minder.wire.machine_tokens import MachineTokens
from minder.wire.tls import client_context
from minder.wire.tokens import machine_of, read_token

__all__ = [
    "DetectorConfig",
    "JobConfig",
    "LocalHandle",
    "MachineConfig",
    "MetricsConfig",
    "ReplayConfig",
    "SignalsConfig",
    "StandbyConfig",
    "TelemetryConfig",
    "TlsConfig",
    "check_url",
    "default_state_dir",
    "load_config",
    "parse_config",
    "read_config",
]

_PATHS = ("machine_token_dir", "launcher_token_dir", "agent_token_file", "launcher_token_file", "checkpoint_dir", "state_dir", "record_dir")


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LocalHandle(_Strict):
    """How a machine that lives on the controller's own host can be ended when nothing of it answers. run_dir: that of its agent and
    launcher. cgroups: those that its processes run in, as paths."""

    run_dir: str | None = None
    cgroups: tuple[str, ...] = ()


class MachineConfig(_Strict):
    """One machine. name: as its agent and telemetry call it. agent, launcher: its address, like "http://10.0.0.7:9401"; a machine
    without a launcher is only watched. standby: waits to take another machine's place. rack, switch: what it shares with others; suspects
    that share one are one trouble. block: the part of the network, below one spine switch, in which groups stay close together.
    job_address: its address on the job's network, where pair tests meet; the host of launcher or agent, if not given. serial: for the
    vendor; nothing is decided by it. local: where it lives on the controller's own host.
    """

    name: str
    agent: str | None = None
    launcher: str | None = None
    standby: bool = False
    rack: str | None = None
    switch: str | None = None
    block: str | None = None
    serial: str | None = None
    job_address: str | None = None
    local: LocalHandle | None = None

    @field_validator("agent", "launcher")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        return None if url is None else _demand_url(url)


class TelemetryConfig(PrometheusSettings):
    """Where samples come from. source: "auto" is Prometheus if a url is given, else the built-in scraper of the agents. url: the
    Prometheus, with its path prefix. interval_s: how often it is asked, or the agents are scraped. machine_label: the label that names the
    machine; a list: the first of them that a series has. machine_map: names of machines by what identifies their targets, where the label
    does not. join: where a series without the label finds its machine, a [[telemetry.join]] table for each. short_names: a machine's
    name ends at its first dot. mapping: whose metric names are read: "minder" (our agents), another mapping that comes with minder
    (docs/mappings.md), a TOML file of yours, or several joined by "+". selector: label matchers that narrow what is asked for, like
    'cluster="a"'. headers: sent with every request to the Prometheus. ca_file: PEM file of who signs its certificate. cert_file, key_file:
    our own certificate, where it wants one. username: for basic authentication. password_file: a file with its password, readable by
    its owner and group only; or the password is in MINDER_PROMETHEUS_PASSWORD. bearer_token_file: a file with a token, as private; or the
    token is in MINDER_PROMETHEUS_TOKEN. tenant: sent as X-Scope-OrgID.
    """

    source: Literal["auto", "scrape", "prometheus"] = "auto"

    @property
    def asks_prometheus(self) -> bool:
        """Whether samples come from a Prometheus, and not from the machines' agents."""
        return self.source == "prometheus" or (self.source == "auto" and bool(self.url))

    @model_validator(mode="after")
    def _knows_its_server(self) -> TelemetryConfig:
        if self.url is not None:
            _demand_url(self.url)
        elif self.source == "prometheus":
            raise ValueError('telemetry.url is missing: source = "prometheus" needs the server\'s address')
        return self


class DetectorConfig(_Strict):
    """Which detector reads the telemetry. name: a detector by name. model: before the name: "models:/minder-detector@champion", or a
    folder that `minder train` wrote. shadow: another one that looks on, and whose would-be verdicts go to the ledger only. drift: whether
    metrics that leave the range of the model's training are reported."""

    name: str = "default"
    model: str | None = None
    shadow: str | None = None
    drift: bool = True

    @property
    def uri(self) -> str:
        return self.model or self.name


class SignalsConfig(_Strict):
    """When links call a person. link_flaps: so many on one machine within link_flap_window_s, 0 never. link_flap_window_s: seconds within
    which they are counted. link_down_s: so many seconds down is no flap. What every other signal leads
    to stands in minder/edge/signals/signal_rules.toml."""

    link_flaps: int = Field(default=2, ge=0)
    link_flap_window_s: float = Field(default=300.0, gt=0)
    link_down_s: float = Field(default=45.0, gt=0)


class MetricsConfig(_Strict):
    """The controller's own metrics for Prometheus, off unless it listens. listen: an address like "127.0.0.1:9403". token_file: needed
    on an address that other machines reach."""

    listen: str | None = None
    token_file: str | None = None

    @model_validator(mode="after")
    def _is_safe(self) -> MetricsConfig:
        if self.listen is None:
            return self
        try:
            host, _ = parse_address(self.listen, "metrics.listen", "127.0.0.1:9403")
        except BadInputError as error:  # with the others of the file
            raise ValueError(str(error)) from None
        if not is_loopback(host) and self.token_file is None:
            raise ValueError(f"metrics.listen {self.listen} can be reached from outside: give metrics.token_file, or listen on 127.0.0.1")
        return self

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port, None where metrics are off."""
        return None if self.listen is None else parse_address(self.listen, "metrics.listen", "127.0.0.1:9403")

    def token(self) -> str | None:
        """Raises ConfigError where its file cannot be used."""
        return None if self.token_file is None else _read_token("metrics.token_file", self.token_file)


class TlsConfig(_Strict):
    """What https:// addresses of agents and launchers are called with, as PEM files. ca: who signs their certificates (the system's
    authorities if not given). cert, key: the controller's own, where machines ask for one."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> TlsConfig:
        if (self.cert is None) != (self.key is None):
            raise ValueError("give both tls.cert and tls.key, or neither")
        return self

    def context(self) -> ssl.SSLContext | None:
        """None where nothing is configured. Raises ConfigError that names the file."""
        return client_context(self.ca, self.cert, self.key) if self.ca or self.cert else None


class StandbyConfig(_Strict):
    """How standbys are tested while they wait, by their launchers at low priority. probe_every_s: so often; 0 for never. probes: which
    (docs/diagnostics.md). alignment: also bit-wise alignment, which finds what computes wrong numbers; without torch it says that it does
    not apply."""

    probe_every_s: float = Field(default=3600.0, ge=0.0)
    probes: tuple[str, ...] = ("links", "clock", "device_health", "loopback", "memory", "gemm")
    alignment: bool = True

    @field_validator("probes")
    @classmethod
    def _run_beside_workers(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in ALONE:
                raise ValueError(f'standby.probes: no probe "{name}" that one machine runs by itself; there are {", ".join(ALONE)}')
            if find_program(name).probe.changes:
                raise ValueError(f"standby.probes: {name} may change settings of a machine, and a standby may be wanted at any moment")
        return names

    @property
    def chosen(self) -> tuple[str, ...]:
        """Names, each once, alignment last."""
        return tuple(dict.fromkeys((*self.probes, *(("alignment",) if self.alignment else ()))))


class ReplayConfig(_Strict):
    """What groups of machines run when the job is replayed while it stands (docs/replay.md). command: "script" is the job's own script, the
    one that its launchers were started with, under MINDER_REPLAY=steps,seed,layers; "reference" a small model that comes with minder.
    steps: of each run. runs: of each group in each phase; more of them find a fault that comes and goes. seed: of weights and data. layers:
    of the job's model, of which the replay keeps one a pipeline stage; 0: not known."""

    command: Literal["reference", "script"] = Field(
        default="reference", description='"script": the one that launchers were started with; "reference": a small model of minder\'s.'
    )
    steps: int = Field(default=100, ge=1, le=10_000, description="Steps of each run.")
    runs: int = Field(default=2, ge=1, le=100, description="Runs of each group in each phase.")
    seed: int = Field(default=0, ge=0, description="Seed of weights and data.")
    layers: int = Field(default=0, ge=0, description="Layers of the job's model; 0: not known.")

    @property
    def settings(self) -> ReplaySettings:
        return ReplaySettings(self.command, self.steps, self.runs, self.seed, self.layers)


class JobConfig(_Strict):
    """A whole job: who runs it, where it is watched from, and what may be done to it. name: the job's, in the ledger and in metrics.
    machines: a [[machines]] table for each. engine: an [engine] table where Slurm or Kubernetes owns the machines. ranks_per_machine:
    ranks on each. parallelism: sizes of tensor, pipeline, data, expert and context, and rank_order ("tp-dp-pp"); it says who is whose
    peer. environment: variables that the ranks get besides. step_pattern: regular expression with a group `step` for the lines of
    the ranks' logs; the ranks get it as MINDER_STEP_PATTERN. checkpoint_dir: where the job saves; its ranks get it as
    MINDER_CHECKPOINT_DIR. checkpoints: "local" where each machine keeps its own, so that ranks cannot move to others for a trial;
    "memory" where the script uses Checkpointer("memory"): every step is kept, at peers.
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
    parallelism: dict[str, int | str] = {}
    environment: dict[str, str] = {}
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
    policy: dict[str, Any] = {}  # minder.act.policy.config.PolicyConfig
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
        return [key for key, path in named.items() if path and machine_of(_read_token(key, path)) is None]


def _demand_url(url: str) -> str:
    """Raises ValueError unless it is one that a client can call."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port beyond 65535, a bracket that does not close
        good = False
    if not good:
        shown = re.sub(r"//[^/]*@", "//...@", url)  # a password is not printed
        raise ValueError(f'"{shown}" is no address: give one like "http://10.0.0.7:9401"')
    return url


def check_url(option: str, url: str) -> str:
    """Raises ConfigError unless it is an address that a client can call."""
    try:
        return _demand_url(url)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from error


def _read_token(key: str, path: str) -> str:
    try:
        return read_token(path)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def _others(values: dict[str, Any]) -> int:
    product = 1
    for axis in ("tensor", "pipeline", "context"):
        size = values.get(axis, 1)
        product *= size if isinstance(size, int) else 1
    return product


def read_config(path: str | os.PathLike[str]) -> JobConfig:
    """A job.toml as it stands; the files that it names are not looked at. A relative path in it is relative to its folder.

    Raises ConfigError with one line: file, key, what is wrong.
    """
    try:
        data = _anchored(tomllib.loads(Path(path).read_text()), Path(path).absolute().parent)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    return parse_config(data, str(path))


def load_config(path: str | os.PathLike[str], *, only_watch: bool = False) -> JobConfig:
    """Read and check a job.toml, its token files included. only_watch: without its launchers, whose token is not read then.

    Raises ConfigError as `read_config`.
    """
    config = read_config(path)
    try:
        config = config.without_launchers() if only_watch else config
        if config.engine is None:
            config.topology()
        config.policy_config(False)
        config.endpoints()
        config.metrics.token()
        config.tls.context()
        if config.telemetry.url is not None:
            config.telemetry.access()
    except BadInputError as error:
        raise ConfigError(f"{path}: {error}") from error
    return config


def parse_config(data: Mapping[str, Any], where: str) -> JobConfig:
    """The content of a job.toml as a configuration; its counts and files are not looked at.

    Raises ConfigError with one line: `where`, key, what is wrong.
    """
    try:
        return JobConfig(**data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, _key_of(first["loc"], first["type"])))
        raise ConfigError(f"{where}: {key + ': ' if key else ''}{first['msg'].removeprefix('Value error, ')}") from error


def _key_of(place: tuple[int | str, ...], kind: str) -> tuple[int | str, ...]:
    """As it stands in the file: which of the engines an [engine] is read as is no key of it."""
    if kind.startswith("union_tag_"):
        return (*place, "kind")
    return (place[0], *place[2:]) if place[:1] == ("engine",) and len(place) > 1 else place


def _anchored(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same configuration, wherever it is read from: its own paths become absolute. What is no path yet is refused later."""

    def anchor(value: Any) -> Any:
        return str(folder / Path(value).expanduser()) if isinstance(value, str) and value else value

    found = {key: anchor(value) if key in _PATHS else value for key, value in data.items()}
    detector = found.get("detector")
    if isinstance(detector, dict):  # "models:/..." and a detector's name are no paths
        paths = {key for key, value in detector.items() if "/" in str(value) and not str(value).startswith("models:/")}
        found["detector"] = {key: anchor(value) if key in paths else value for key, value in detector.items()}
    metrics = found.get("metrics")
    if isinstance(metrics, dict):
        found["metrics"] = {key: anchor(value) if key == "token_file" else value for key, value in metrics.items()}
    engine = found.get("engine")
    if isinstance(engine, dict) and "kubeconfig" in engine:
        found["engine"] = {**engine, "kubeconfig": anchor(engine["kubeconfig"])}
    if isinstance(found.get("tls"), dict):
        found["tls"] = {key: anchor(value) for key, value in found["tls"].items()}
    telemetry = found.get("telemetry")
    if isinstance(telemetry, dict):
        found["telemetry"] = anchored(telemetry, folder)
    return found
