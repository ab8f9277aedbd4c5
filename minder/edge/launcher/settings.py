"""A launcher's command line, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from minder.edge.cache.settings import parse_bytes
from minder.edge.launcher.variables import check_patterns
from minder.model.errors import BadInputError
from minder.model.names import check_job_name, check_machine_name
from minder.wire.addresses import is_loopback, parse_address
from minder.wire.own_token import own_token
from minder.wire.tls import ServerTls
from minder.wire.token_files import Token

__all__ = ["LaunchSettings", "check_settings", "parse_environment"]


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """One launcher: `slots` workers of `job` on `machine`. Times in seconds, sizes in bytes. allow_env: patterns of variables that a
    request may set besides those of minder.edge.launcher.variables. probe_folder: where the disk probe writes, the temporary folder if not
    given. allow_updates: where updates of the job's code are kept; None: none is taken. update, update_env, code_root: of the version that
    a worker is started with (minder.edge.launcher.updates); 0 for the launcher's own command."""

    job: str
    machine: str
    host: str
    port: int
    slots: int
    command: tuple[str, ...]
    run_dir: Path
    log_dir: Path
    token: Token | None = None
    metrics_token: Token | None = None
    allow_env: tuple[str, ...] = ()
    barrier: Literal["script", "bootstrap"] = "bootstrap"
    warm_spares: bool = False
    start_device: bool = False  # a process has initialised the GPU of its slot before it waits at the barrier
    env: dict[str, str] = field(default_factory=dict)
    cgroup: str | None = None
    step_pattern: str | None = None
    tls: ServerTls | None = None
    probe_folder: Path | None = None
    cache_bytes: str = ""  # of the checkpoint cache beside the workers; "" for none
    cache_folder: Path | None = None
    cache_listen: str = ""  # where other machines' caches reach it; "" for a free port of `host`
    spare_delay_s: float = 5.0
    log_limit_bytes: int = 64 * 1024 * 1024
    grace_s: float = 10.0  # that the workers have when the launcher is asked to end
    allow_updates: Path | None = None
    update: int = 0
    update_env: dict[str, str] = field(default_factory=dict)
    code_root: Path | None = None

    @property
    def heartbeat_dir(self) -> Path:
        return self.run_dir / "heartbeats"

    @property
    def register_path(self) -> Path:
        return self.run_dir / "jobs" / f"{self.job}.json"


def parse_environment(pairs: list[str]) -> dict[str, str]:
    """`K=V` pairs. Raises BadInputError."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadInputError(f"--env {pair!r}: give NAME=VALUE")
        found[name] = value
    return found


def check_settings(settings: LaunchSettings, token_file: Path | None) -> Token | None:
    """The token, after everything that can be wrong was looked at. Raises BadInputError or ConfigError."""
    check_job_name("--job", settings.job)
    check_machine_name("--machine", settings.machine)
    if settings.slots < 1:
        raise BadInputError(f"--slots {settings.slots}: at least 1 worker is needed")
    if not settings.command:
        raise BadInputError("no script: put it after --, for example: minder launch --job demo ... -- train.py")
    if settings.command[0] != "-m" and not Path(settings.command[0]).is_file():
        raise BadInputError(f"script {settings.command[0]}: no such file; give its path after --")
    check_patterns(settings.allow_env)
    if settings.cache_bytes:
        parse_bytes(settings.cache_bytes, "--cache-bytes")
    elif settings.cache_folder is not None or settings.cache_listen:
        raise BadInputError("--cache-folder and --cache-listen go with --cache-bytes: give the cache a size, such as --cache-bytes 64G")
    cache_host = parse_address(settings.cache_listen, "--cache-listen", "10.0.0.7:0")[0] if settings.cache_listen else settings.host
    if settings.cache_bytes and cache_host in ("0.0.0.0", "::"):
        raise BadInputError(f"the cache cannot listen on {cache_host}: give --cache-listen ADDRESS:0 as the job's machines reach this one")
    if settings.warm_spares and settings.barrier == "script":
        raise BadInputError("--warm-spares needs --barrier bootstrap: a script with minder.run restarts in its own process")
    if token_file is None:
        if not is_loopback(settings.host):
            raise BadInputError(f"--listen {settings.host} can be reached from other machines: give --token-file")
        return None
    return own_token(token_file, settings.machine)
