"""A training recipe (models/recipes/*.toml): which detector, from which data, and what is tried. Unknown keys are errors."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from minder.ingest.sources.invalid import first_problem
from minder.ingest.sources.settings import PrometheusSettings, anchored
from minder.model.errors import ConfigError, MinderError
from minder.model.resources import find_resource

__all__ = [
    "DataRules",
    "NetworkRules",
    "PrometheusRules",
    "SearchRules",
    "SimulateRules",
    "TrainingRecipe",
    "WorldRules",
    "load_training_recipe",
]


class _Rules(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SimulateRules(_Rules):
    """Recordings of `minder simulate`, made for this training and kept nowhere else. recipe: a name, or a file beside this one."""

    recipe: str
    count: int = Field(ge=2, le=100_000)
    seed: int = 1


class WorldRules(_Rules):
    """Worlds of the simulator's families (minder/simulate/worlds), made for this training and never stored; their features are cached.
    families: which, all if empty. seeds: of each family."""

    families: tuple[str, ...] = ()
    seeds: int = Field(default=40, ge=2, le=10_000)
    first: int = Field(default=0, ge=0)


class PrometheusRules(PrometheusSettings):
    """The last minutes of a site that runs well: nothing in them is labelled, so they teach what is usual, and no threshold. The other
    keys are those of [telemetry] in job.toml."""

    url: str
    machines: tuple[str, ...] = Field(min_length=1)
    minutes: float = Field(gt=0, le=24 * 60)
    interval_s: float = Field(default=15.0, gt=0)


class DataRules(_Rules):
    """Where the data is. held_back: share of the labelled recordings that is not trained on, and that decides about promotion."""

    recordings: tuple[str, ...] = ()
    simulate: SimulateRules | None = None
    prometheus: PrometheusRules | None = None
    worlds: WorldRules | None = None
    held_back: float = Field(default=0.3, ge=0.0, lt=1.0)

    @model_validator(mode="after")
    def _has_some(self) -> DataRules:
        if not self.recordings and self.simulate is None and self.prometheus is None and self.worlds is None:
            raise ValueError("[data] is empty: give recordings, simulate, prometheus or worlds")
        return self


class SearchRules(_Rules):
    """parameters: of the detector's configuration, each with the values to try; all combinations are. Of those with at least this
    precision, the one with the best F1 is taken, and of equals the soonest."""

    parameters: dict[str, tuple[float, ...]] = {}
    least_precision: float = Field(default=0.95, ge=0.0, le=1.0)


class NetworkRules(_Rules):
    """The reference's networks. windows: healthy windows for each metric."""

    steps: int = Field(default=1500, ge=1)
    windows: int = Field(default=20_000, ge=64)
    hidden: int = Field(default=4, ge=1)
    latent: int = Field(default=8, ge=1)


class TrainingRecipe(_Rules):
    """folder: of the recipe's file, which its paths are relative to."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")
    detector: Literal["default", "minder", "pool"] = "default"
    seed: int = 1
    data: DataRules
    search: SearchRules = SearchRules()
    network: NetworkRules = NetworkRules()
    folder: Path = Path()

    @model_validator(mode="after")
    def _fits_its_data(self) -> TrainingRecipe:
        if (self.detector == "pool") != (self.data.worlds is not None):
            raise ValueError('detector "pool" is trained on data.worlds, and no other detector is')
        return self


def load_training_recipe(name_or_path: str) -> TrainingRecipe:
    """Read a recipe: a file, or the name of a packaged one. Raises ConfigError with file, key and what is wrong."""
    path = Path(name_or_path)
    if not path.is_file() and path.suffix != ".toml":  # a folder of that name, such as the built site/, is no recipe
        try:
            path = find_resource(f"models/recipes/{name_or_path}.toml")
        except MinderError:
            raise ConfigError(f'there is no recipe "{name_or_path}": give a file, or one of {", ".join(_packaged())}') from None
    try:
        folder, data = path.resolve().parent, tomllib.loads(path.read_text(encoding="utf-8"))
        return TrainingRecipe(**{**_anchored(data, folder), "folder": folder})
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}: give the path of a recipe") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_problem(error, TrainingRecipe)}") from error


def _anchored(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What data.prometheus names is beside the recipe, as in job.toml."""
    table = data.get("data")
    if not isinstance(table, dict) or not isinstance(table.get("prometheus"), dict):
        return data
    return {**data, "data": {**table, "prometheus": anchored(table["prometheus"], folder)}}


def _packaged() -> list[str]:
    return sorted(path.stem for path in find_resource("models/recipes").glob("*.toml"))
