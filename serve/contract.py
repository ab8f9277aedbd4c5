"""The OpenAPI document: what FastAPI writes, completed so that each property is described and each reference resolves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from minder.act.actuators.kubernetes.config import KubernetesConfig
from minder.act.actuators.slurm.config import SlurmConfig
from minder.act.recovery.pool_size import PoolConfig
from minder.config import (
    DetectorConfig,
    JobConfig,
    LocalHandle,
    MachineConfig,
    MetricsConfig,
    ReplayConfig,
    SignalsConfig,
    StandbyConfig,
    TelemetryConfig,
    TlsConfig,
)
from minder.diagnose.scoring.config import ScoringConfig
from minder.ingest.sources.settings import JoinRule
from minder.record.api.problem import Problem
from minder.record.api.records import RECORD_FIELDS
from minder.record.api.scores import ScoreRequest

__all__ = ["complete", "split_meanings"]

_PREFIX = "#/components/schemas/"
_TABLES: tuple[type[BaseModel], ...] = (
    JobConfig, MachineConfig, LocalHandle, TelemetryConfig, JoinRule, DetectorConfig, ScoringConfig, SlurmConfig, KubernetesConfig,
    MetricsConfig, PoolConfig, ReplayConfig, SignalsConfig, StandbyConfig, TlsConfig,
)  # fmt: skip
# Bodies that no route's signature has: files, TOML, and what every refusal answers.
_UNSIGNED: tuple[type[BaseModel], ...] = (JobConfig, ScoreRequest, Problem)


def complete(plain: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """FastAPI's `openapi`, with the schemas that routes name and no signature has, and with a description of every property."""

    def openapi() -> dict[str, Any]:
        document = plain()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        named = models_json_schema([(model, "validation") for model in _UNSIGNED], ref_template=_PREFIX + "{model}")[1]["$defs"]
        schemas.update({name: schema for name, schema in named.items() if name not in schemas})
        for name, described in _meanings():
            for key, meaning in described.items():
                _describe(schemas.get(name, {}), key, meaning)
        return document

    return openapi


def _meanings() -> Iterator[tuple[str, Mapping[str, str]]]:
    """Of schemas whose fields say nothing of themselves: job.toml's tables by their docstrings, the ledger's records by a table."""
    yield from RECORD_FIELDS.items()
    for model in _TABLES:
        yield model.__name__, {key: meaning[0].upper() + meaning[1:] + "." for key, meaning in _documented(model).items() if meaning}


def _documented(model: type[BaseModel]) -> dict[str, str]:
    return split_meanings(inspect.getdoc(model) or "", list(model.model_fields))[1]


def _describe(schema: dict[str, Any], key: str, meaning: str) -> None:
    if key in schema.get("properties", {}):
        schema["properties"][key].setdefault("description", meaning)


def split_meanings(text: str, keys: list[str]) -> tuple[str, dict[str, str]]:
    """A docstring's sentences before its first "key: " or "key, key: ", and what it says of each key."""
    one = "|".join(sorted(map(re.escape, keys), key=len, reverse=True))
    pieces = re.split(rf"(?:^|(?<=[.;]) )((?:{one})(?:, (?:{one}))*): ", " ".join(text.split()))
    said = {name: meaning.rstrip(".;") for names, meaning in zip(pieces[1::2], pieces[2::2], strict=True) for name in names.split(", ")}
    return pieces[0].strip(), said
