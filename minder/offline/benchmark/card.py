"""What a version of the benchmark consists of (datasets/benchmark/benchmark.toml)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from minder.model.errors import BadInputError
from minder.model.resources import find_resource

__all__ = ["PARTS", "Card", "benchmark_folder", "read_card"]

PARTS: Mapping[str, str] = {
    "telemetry": "telemetry of a job: which machine is faulty, and since when is that known",
    "logs": "telemetry with steps, kernel logs and exits: the same",
    "lab": "telemetry and events of real processes with a real fault: the same",
    "stacks": "stack dumps of a job that stands: which machine holds it up",
    "dumps": "Flight Recorder dumps of a job that stands: which ranks hold it up",
}
TIMED = ("telemetry", "logs", "lab")  # recordings, whose verdicts have a time


@dataclass(frozen=True, slots=True)
class Card:
    """limit_s: processor time for one input; budget_s: for all together. check_cut: one recording in so many is given again, cut off at
    the verdict.

    judging: version to the SHA-256 that commits to its judging seed.
    """

    version: str
    development_seed: str
    limit_s: float
    budget_s: float
    check_cut: int
    families: tuple[str, ...]
    each: int
    recipe: str
    count: int
    judging: Mapping[str, str]


def benchmark_folder() -> Path:
    """Where rules, cases and commitments stand."""
    return find_resource("datasets/benchmark")


def read_card(path: Path | None = None) -> Card:
    """The card of this release. Raises BadInputError for a file that is none."""
    file = path or benchmark_folder() / "benchmark.toml"
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        telemetry, logs = data["telemetry"], data["logs"]
        return Card(
            str(data["version"]), str(data["development_seed"]), float(data["limit_s"]), float(data["budget_s"]), int(data["check_cut"]),
            tuple(telemetry["families"]), int(telemetry["each"]), str(logs["recipe"]), int(logs["count"]), dict(data["judging"]),
        )  # fmt: skip
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"{file} is no card of the benchmark ({error}): take the one of the release") from error
