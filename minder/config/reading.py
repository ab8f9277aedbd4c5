"""A job.toml, read and checked. Every error is one line: file, key, what is wrong."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from minder.config.job import JobConfig
from minder.config.tables import demand_url
from minder.ingest.sources.invalid import what_is_wrong
from minder.ingest.sources.settings import anchored
from minder.model.errors import BadInputError, ConfigError

__all__ = ["check_url", "load_config", "parse_config", "read_config"]

_PATHS = ("machine_token_dir", "launcher_token_dir", "agent_token_file", "launcher_token_file", "checkpoint_dir", "state_dir", "record_dir")


def check_url(option: str, url: str) -> str:
    """Raises ConfigError unless it is an address that a client can call."""
    try:
        return demand_url(url)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from error


def read_config(path: str | os.PathLike[str]) -> JobConfig:
    """A job.toml as it stands; the files that it names are not looked at. A relative path in it is relative to its folder.

    Raises ConfigError with one line: file, key, what is wrong.
    """
    try:
        data = _anchored(tomllib.loads(Path(path).read_text()), Path(path).absolute().parent)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}: give the path of a job.toml") from error
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
        raise ConfigError(f"{where}: {key + ': ' if key else ''}{what_is_wrong(first, JobConfig)}") from error


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
