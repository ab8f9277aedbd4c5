"""A job as its job.toml says it is: tokens, ledger, disks, ports, agents and launchers with their versions and clocks, telemetry."""

from __future__ import annotations

import importlib.util
import os
import socket
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minder.app.build import state_dir_of
from minder.config import JobConfig
from minder.doctor.finding import Finding
from minder.doctor.machine import look_at_space
from minder.doctor.reach import look_at_endpoints
from minder.doctor.steps import look_at_steps
from minder.doctor.telemetry import look_at_telemetry
from minder.model.errors import BadInputError, ConfigError, MinderError
from minder.model.private import make_private
from minder.record.incidents import Ledger, kinds
from minder.wire.machine_tokens import machine_token
from minder.wire.tokens import read_token

__all__ = ["look_at_job", "look_at_tokens"]

_TOKEN_KEYS = ("agent_token_file", "launcher_token_file")
_FOLDER_KEYS = ("machine_token_dir", "launcher_token_dir")
_LEDGER_BYTES = 2**30


def look_at_tokens(path: Path) -> list[Finding]:
    """Token files of a job.toml that may be wrong otherwise, each by itself. Raises BadInputError where it is no TOML."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}: give the path of a job.toml") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} is not TOML: {error}") from error
    found = []
    metrics = data.get("metrics")
    named = {key: data.get(key) for key in _TOKEN_KEYS} | {
        "metrics.token_file": metrics.get("token_file") if isinstance(metrics, dict) else None
    }
    for key, value in named.items():
        if isinstance(value, str):
            found.append(_token(key, path.absolute().parent / Path(value).expanduser()))
    return found + _machine_tokens(data, path.absolute().parent)


def _machine_tokens(data: Mapping[str, Any], folder: Path) -> list[Finding]:
    """One finding for each folder of tokens: every machine has a file of its own there."""
    machines = data.get("machines")
    rows = [item for item in machines if isinstance(item, dict)] if isinstance(machines, list) else []
    names = [item["name"] for item in rows if isinstance(item.get("name"), str)]
    found = []
    for key in _FOLDER_KEYS:
        value = data.get(key)
        if not isinstance(value, str):
            continue
        place = folder / Path(value).expanduser()
        wrong = [why for name in names if (why := _wrong_token(place, name))]
        if wrong:
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            found.append(Finding(key, "missing", wrong[0] + more, f"minder token machine NAME --dir {place}"))
        else:
            found.append(Finding(key, "ok", f"{place} has a private token for each of {len(names)} machines"))
    return found


def _wrong_token(place: Path, machine: str) -> str:
    try:
        machine_token(place, machine)
    except ConfigError as error:
        return str(error).partition(": run ")[0]
    return ""


def _token(key: str, file: Path) -> Finding:
    try:
        read_token(file)
    except ConfigError as error:
        seen, _, mend = str(error).partition(": run ")
        return Finding(key, "missing", seen, f"run {mend}" if mend else "openssl rand -hex 16 > FILE && chmod 600 FILE")
    return Finding(key, "ok", f"{file} is private")


def look_at_job(config: JobConfig, environment: Mapping[str, str] | None = None) -> list[Finding]:
    """Everything that the configuration names. environment: MINDER_LEDGER in it wins, as for the controller."""
    environment = os.environ if environment is None else environment
    state_dir = state_dir_of(config)
    found = [_ledger(environment.get("MINDER_LEDGER") or str(state_dir / "ledger.db")), look_at_space("state", state_dir, _LEDGER_BYTES)]
    if any(machine.launcher for machine in config.machines):
        found.append(_torch())
    if config.checkpoint_dir:
        found.append(look_at_space("checkpoints", Path(config.checkpoint_dir)))
    if config.record_dir:
        found.append(look_at_space("recordings", Path(config.record_dir)))
    if config.metrics.address is not None:
        found.append(_port("metrics.listen", *config.metrics.address))
    return [*look_at_telemetry(config), *look_at_endpoints(config), *look_at_steps(state_dir, config.name), *found]


def _torch() -> Finding:
    """The controller of a job that minder starts hosts the rendezvous of its ranks."""
    if importlib.util.find_spec("torch") is None:
        return Finding("torch", "missing", "not installed here: `minder run` hosts the rendezvous", "pip install 'minder-cluster[torch]'")
    return Finding("torch", "ok", "installed: `minder run` can host the rendezvous")


def _ledger(location: str) -> Finding:
    """Written, not only opened: a full disk and a read-only mount open well."""
    try:
        if "://" not in location:
            make_private(Path(location).parent)
        with Ledger(location) as ledger:
            ledger.append(kinds.NOTE, {"text": "minder doctor: the ledger can be written", "by": "doctor"})
            return Finding("ledger", "ok", f"{ledger.location} was written")
    except (MinderError, OSError) as error:
        return Finding(
            "ledger", "missing", str(error), "free disk space, mend the owner of the file, or start the database: nothing is acted on"
        )


def _port(what: str, host: str, port: int) -> Finding:
    """Free, or answered by a controller of ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            seen = f"{host}:{port} cannot be had here: {error.strerror}"
            return Finding(what, "note", seen, "right if this job's controller runs already; else choose another port")
    return Finding(what, "ok", f"{host}:{port} is free")
