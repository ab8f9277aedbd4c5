"""Whether a job may be registered: its configuration comes from somewhere else, and is used on this machine with this machine's token."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from minder.config import JobConfig, MetricsConfig, TlsConfig, parse_config
from minder.diagnose.scoring.config import ScoringConfig
from minder.ingest.sources.mapping import default_mappings
from minder.ingest.sources.settings import SETTINGS_PATHS
from minder.model.errors import BadInputError
from minder.record.api.fields import NAME
from serve.watching.settings import JobsSettings, allows_host, watch_dir

__all__ = ["allow_config", "read_document", "watched_config"]

_WHERE = "the job"
_MOST_RANKS = 100_000
_MOST_MACHINES = 5_000
_LONGEST_TEXT = 2_000
_TOKEN_KEYS = ("machine_token_dir", "launcher_token_dir", "agent_token_file", "launcher_token_file")
_INTERVAL_S = (0.2, 3_600.0)
_URL = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[A-Za-z0-9._/-]*)?")
_TEMPLATE = re.compile(r"https?://\{(node|node_ip|pod_ip)\}(:[0-9]{1,5})?/?")


def read_document(body: bytes, media_type: str) -> dict[str, Any]:
    """The content of a job.toml, as TOML ("application/toml") or as JSON. Raises BadInputError."""
    kind = "TOML" if media_type.partition(";")[0].strip().lower() in ("application/toml", "text/toml") else "JSON"
    try:
        text = body.decode("utf-8")
        found = tomllib.loads(text) if kind == "TOML" else json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise BadInputError(f"{_WHERE} is no {kind} that can be read: it is nested too deeply") from error
    except ValueError as error:  # also UnicodeDecodeError, and a number of too many digits
        raise BadInputError(f"{_WHERE} is not {kind}: {_plain(str(error))}; send job.toml as application/toml, or as JSON") from error
    if not isinstance(found, dict):
        raise BadInputError(f"{_WHERE} is no table: send the content of a job.toml")
    return found


def allow_config(document: Mapping[str, Any], settings: JobsSettings) -> JobConfig:
    """The job, only watched, and without what a watcher has no use for. Raises BadInputError for anything that is wrong or not allowed."""
    try:
        config = parse_config(document, _WHERE)
    except (TypeError, RecursionError) as error:  # keys that are no names; a policy nested too deeply
        raise BadInputError(f"{_WHERE}: its keys are not those of a job.toml") from error
    except BadInputError as error:
        raise BadInputError(_plain(str(error))) from error
    config = config.without_launchers().model_copy(update={"environment": {}})
    config.policy_config(False)
    _demand_bounds(config)
    _demand_plain(config.model_dump(mode="json"), _WHERE)
    _demand_nothing_of_this_machine(config)
    if config.engine is not None and config.engine.kind not in settings.engines:
        allowed = f"[jobs] of the service allows {', '.join(settings.engines) or 'none'}"
        raise BadInputError(f"engine.kind {config.engine.kind} may not be used by a job that is registered here: {allowed}")
    _demand_addresses(config, settings)
    if config.engine is None:
        config.topology()
    return config


def watched_config(config: JobConfig, settings: JobsSettings) -> JobConfig:
    """A registered job with what this machine adds. Raises ConfigError for a token file or certificate that cannot be used."""
    tokens = {"machine_token_dir": settings.machine_token_dir, "agent_token_file": settings.agent_token_file}
    own = {**tokens, "tls": settings.tls, "state_dir": str(watch_dir(config.name))}
    found = config.model_copy(update=own)
    found.endpoints()
    found.tls.context()
    return found


def _demand_bounds(config: JobConfig) -> None:
    if len(config.machines) > _MOST_MACHINES or len(config.machines) * config.ranks_per_machine > _MOST_RANKS:
        raise BadInputError(f"{_WHERE} is too large: at most {_MOST_MACHINES} machines and {_MOST_RANKS} ranks are registered here")
    if not _INTERVAL_S[0] <= config.telemetry.interval_s <= _INTERVAL_S[1]:
        raise BadInputError(f"telemetry.interval_s: give {_INTERVAL_S[0]:g} to {_INTERVAL_S[1]:g} seconds")
    for machine in config.machines:
        if len(machine.name) > 255 or not re.fullmatch(NAME, machine.name):
            raise BadInputError("machines.name: use letters, digits, and _ . : - behind the first, 255 at most")


def _demand_plain(value: Any, where: str) -> None:
    """Texts that can be printed and stored, numbers that are finite."""
    for text in _leaves(value):
        if isinstance(text, float) and not math.isfinite(text):
            raise BadInputError(f"{where} holds a number that is not finite")
        if isinstance(text, str) and (len(text) > _LONGEST_TEXT or not text.isprintable()):
            raise BadInputError(f"{where} holds a text that cannot be printed, or is longer than {_LONGEST_TEXT} characters")
        if isinstance(text, int) and abs(text) > 2**53:
            raise BadInputError(f"{where} holds a number beyond 2^53")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _demand_nothing_of_this_machine(config: JobConfig) -> None:
    """No files, listeners, secrets or other clusters: a job's registrant has no rights on this host."""
    named = [key for key in (*_TOKEN_KEYS, "checkpoint_dir", "state_dir", "record_dir") if getattr(config, key)]
    named += [
        key
        for key, plain in (("metrics", MetricsConfig()), ("tls", TlsConfig()), ("scoring", ScoringConfig()))
        if getattr(config, key) != plain
    ]
    named += ["machines.local"] if any(machine.local is not None for machine in config.machines) else []
    named += [f"engine.{key}" for key in ("kubeconfig", "context", "conf", "retest") if getattr(config.engine, key, None)]
    named += [f"telemetry.{key}" for key in (*SETTINGS_PATHS, "headers", "username", "tenant") if getattr(config.telemetry, key)]
    mappings = {part.strip() for part in config.telemetry.mapping.split("+")}
    named += ["telemetry.mapping"] if not mappings <= set(default_mappings()) else []
    for key in ("name", "model", "shadow"):
        uri = str(getattr(config.detector, key) or "")
        named += [f"detector.{key}"] if "/" in uri and not uri.startswith("models:/") else []
    if named:
        raise BadInputError(f"{', '.join(named)}: these concern the service's own machine: leave them out, the service's [jobs] says them")


def _demand_addresses(config: JobConfig, settings: JobsSettings) -> None:
    addresses = {f"agent of {machine.name}": machine.agent for machine in config.machines if machine.agent is not None}
    addresses |= {"telemetry.url": config.telemetry.url} if config.telemetry.url is not None else {}
    template = None if config.engine is None else config.engine.agent
    if template is not None and not _TEMPLATE.fullmatch(template):
        raise BadInputError('engine.agent: its host must be the node itself, like "http://{node}:9401"')
    if not addresses and template is None:
        raise BadInputError(f"{_WHERE} names no agent and no telemetry.url: nothing would be seen of it")
    for key, url in addresses.items():
        if not _URL.fullmatch(url):
            raise BadInputError(f"{key}: give a plain address, like http://10.0.0.7:9401")
        host = urlsplit(url).hostname or ""
        if not allows_host(settings, host):
            raise BadInputError(f"{key}: {host} is not among the hosts of the service's [jobs]")


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _plain(text: str) -> str:
    return text[:500].encode("ascii", "backslashreplace").decode()
