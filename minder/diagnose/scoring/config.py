"""The `[scoring]` table of job.toml."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from minder.model.errors import ConfigError

__all__ = ["ScoringConfig", "scoring_of"]


class ScoringConfig(BaseModel):
    """Where the detector runs. engine: "process" is the controller's own, "ray" an actor of a Ray cluster. ray_address: its head's GCS,
    like "10.0.0.7:6379". cpus: what an actor asks of Ray. answer_s: so long a tick waits for a score."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: Literal["process", "ray"] = "process"
    ray_address: str | None = None
    cpus: float = Field(default=0.1, gt=0)
    answer_s: float = Field(default=1.0, gt=0, le=30)

    @field_validator("ray_address")
    @classmethod
    def _is_address(cls, address: str | None) -> str | None:
        if address is None:
            return None
        host, _, port = address.rpartition(":")
        if "//" in address or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ValueError(f'"{address}" is no address of a Ray head: give one like 10.0.0.7:6379, as `ray start --head` prints it')
        return address

    @model_validator(mode="after")
    def _knows_its_cluster(self) -> ScoringConfig:
        if self.engine == "ray" and self.ray_address is None:
            raise ValueError("ray_address is missing: start Ray first, and give its head's address, like 10.0.0.7:6379 (--ray-address)")
        return self


def scoring_of(configured: ScoringConfig, engine: str | None, ray_address: str | None) -> ScoringConfig:
    """What the command line says goes before job.toml. Raises ConfigError."""
    given = {"engine": engine, "ray_address": ray_address}
    try:
        return ScoringConfig(**{**configured.model_dump(), **{name: value for name, value in given.items() if value is not None}})
    except ValidationError as error:
        first = error.errors()[0]
        option = {"engine": "--engine", "ray_address": "--ray-address"}.get(str(first["loc"][0]) if first["loc"] else "", "--engine ray")
        raise ConfigError(f"{option}: {first['msg'].removeprefix('Value error, ')}") from error
