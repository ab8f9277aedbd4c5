"""A recipe: what kind of recordings to make (datasets/recipes/*.toml). Ranges are [smallest, largest] and are drawn from uniformly."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from minder.ingest.sources.invalid import first_problem
from minder.model.errors import ConfigError, MinderError
from minder.model.resources import find_resource
from minder.simulate.cluster.faults import FAULTS, Mix, share_of
from minder.simulate.cluster.levels import EXTRA_METRICS, METRICS

__all__ = [
    "NUISANCE_KINDS",
    "FaultRules",
    "JobRules",
    "MonitoringRules",
    "NuisanceRules",
    "Recipe",
    "ScheduleRules",
    "load_recipe",
    "recipe_names",
]

# In the order in which they are applied: what the whole job does comes before what one machine does. nuisances/ says how.
NUISANCE_KINDS = (
    "start",
    "evaluation",
    "restart",
    "congestion",
    "wander",
    "uneven_data",
    "link_flap",
    "drift",
    "warm_slot",
    "sidecar",
    "page_cache",
    "other_hardware",
    "stuck_sensor",
    "skewed_clock",
    "dead_exporter",
    "outage",
    "late_dark",
)


def _ordered(bounds: tuple[float, float]) -> tuple[float, float]:
    if not bounds[0] <= bounds[1]:
        raise ValueError("give [smallest, largest]")
    return bounds


Range = Annotated[tuple[float, float], AfterValidator(_ordered)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class _Rules(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class JobRules(_Rules):
    """Jobs: machines are drawn evenly over the logarithm and rounded to whole data-parallel groups."""

    machines: Range = (4, 96)
    gpus_per_machine: tuple[int, ...] = (8,)
    tensor_machines: tuple[int, ...] = (1,)  # machines that one tensor group spans
    pipeline: tuple[int, ...] = (1, 2, 4)
    expert: tuple[int, ...] = (1,)
    step_s: Range = (0.5, 25.0)  # drawn evenly over the logarithm
    host_share: Range = (0.0, 0.04)  # of an iteration in which the GPUs wait for the host
    contrast: Range = (0.3, 1.1)  # between the phases of an iteration; little where communication hides behind computation
    stage_spread: float = Field(default=0.06, ge=0.0)  # how differently stages work (standard deviation of the logarithm)
    slot_spread: float = Field(default=1.0, ge=0.0)  # standing differences between machines, 1.0: as measured
    levels: dict[str, Range] = {}  # the training average of a metric, in its unit, instead of that in levels.py


class ScheduleRules(_Rules):
    """What every job does: checkpoints; short jitters of one metric; housekeeping on one host."""

    checkpoint_every_s: Range = (220.0, 600.0)
    checkpoint_s: Range = (6.0, 30.0)
    jitters_per_machine_hour: float = Field(default=0.5, ge=0.0)
    housekeeping_per_hour: float = Field(default=3.0, ge=0.0)


class FaultRules(_Rules):
    """Which faults, when and how strong. kinds empty: all that are not held out and that happen in the mix."""

    kinds: tuple[str, ...] = ()
    mix: Mix = "published"
    even: bool = False  # every kind equally often instead of the mix
    healthy_share: Share = 0.25
    onset_s: Range = (300.0, 800.0)
    early_share: Share = 0.0
    early_onset_s: Range = (115.0, 180.0)
    severity: Range = (0.8, 1.0)
    weak_share: Share = 0.0
    weak_severity: Range = (0.3, 0.55)
    echo_s: Range = (0.0, 40.0)  # until the peers feel it
    ramp_s: Range = (0.0, 20.0)  # until it is complete


class NuisanceRules(_Rules):
    """What healthy clusters do; `count` of the kinds are drawn for each recording."""

    kinds: tuple[str, ...] = ()
    count: tuple[int, int] = (0, 0)


class MonitoringRules(_Rules):
    """How the site measures."""

    intervals_s: tuple[float, ...] = (1.0,)
    metrics: tuple[int, int] = (19, 19)
    few_share: Share = 0.0  # of recordings from sites that export only `few` metrics
    few: tuple[int, int] = (3, 10)
    extra_metrics: bool = False
    scrape_jitter: float = Field(default=0.05, ge=0.0)  # of the interval
    lost_scrapes: Share = 0.005
    lost_values: Share = 0.005
    separate_rows_share: Share = 0.0
    whole_numbers_share: Share = 0.0  # of recordings whose sensors give whole percents and degrees
    events_share: Share = 0.0  # of recordings with the job's own phases and steps in events.jsonl
    signals_share: Share = 0.0  # of those, recordings in which the fault speaks in the kernel log or by an exit


class Recipe(_Rules):
    """One file of datasets/recipes."""

    name: str
    title: str
    held_out: bool = False
    seed: int = Field(ge=0)
    count: int = Field(default=100, ge=1)
    duration_s: Range = (1200.0, 1500.0)
    tick_s: float = Field(default=1.0, gt=0.0)
    job: JobRules = JobRules()
    schedule: ScheduleRules = ScheduleRules()
    faults: FaultRules = FaultRules()
    nuisances: NuisanceRules = NuisanceRules()
    monitoring: MonitoringRules = MonitoringRules()

    @field_validator("job")
    @classmethod
    def _possible_levels(cls, rules: JobRules) -> JobRules:
        highest = {model.name: model.high for model in METRICS + EXTRA_METRICS}
        _known(tuple(rules.levels), highest, "levels")
        for name, (low, high) in rules.levels.items():
            if not 0.0 < low <= high <= highest[name]:
                raise ValueError(f"levels.{name} lies between 0 and {highest[name]:g}, not from {low:g} to {high:g}")
        return rules

    @field_validator("faults")
    @classmethod
    def _known_faults(cls, rules: FaultRules) -> FaultRules:
        _known(rules.kinds, FAULTS)
        never = [kind for kind in rules.kinds if not share_of(kind, rules.mix, rules.even)]
        if never:
            raise ValueError(f'{", ".join(never)} never happened in the mix "{rules.mix}": leave it out of kinds, or say even = true')
        return rules

    @field_validator("nuisances")
    @classmethod
    def _known_nuisances(cls, rules: NuisanceRules) -> NuisanceRules:
        _known(rules.kinds, NUISANCE_KINDS)
        return rules


def _known(kinds: tuple[str, ...], table: Collection[str], where: str = "kinds") -> None:
    unknown = sorted(set(kinds) - set(table))
    if unknown:
        raise ValueError(f"{where} has unknown names {', '.join(unknown)}: known are {', '.join(sorted(table))}")


def recipe_names() -> tuple[str, ...]:
    """The names of the recipes that minder ships."""
    return tuple(sorted(path.stem for path in find_resource("datasets/recipes").glob("*.toml")))


def load_recipe(name_or_path: str) -> Recipe:
    """A shipped recipe by name, or any file. Raises ConfigError that says what to mend."""
    path = Path(name_or_path)
    if path.suffix != ".toml":
        try:
            path = find_resource(f"datasets/recipes/{name_or_path}.toml")
        except MinderError:
            raise ConfigError(f'no recipe "{name_or_path}": give a .toml file or one of {", ".join(recipe_names())}') from None
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} is missing: give a .toml file or one of {', '.join(recipe_names())}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        return Recipe.model_validate({"name": path.stem, **data})
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_problem(error, Recipe)}") from error
