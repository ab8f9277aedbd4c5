"""What is right for one input of the benchmark, and how it is kept apart from the input: programs never see it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from minder.model.errors import BadInputError

__all__ = ["Name", "Right", "read_right", "write_right"]

Name = str | int  # a machine, or in dumps a rank


@dataclass(frozen=True, slots=True)
class Right:
    """One input's truth. names: those that may be named, of which one must be; empty: none may be. unknown: nothing can be known of it.

    fault: its kind, None where no machine has one. onset_s: UTC seconds, of recordings. seconds: how long a recording is.
    """

    input: str
    part: str
    names: tuple[Name, ...] = ()
    unknown: bool = False
    fault: str | None = None
    onset_s: float | None = None
    seconds: float = 0.0


def write_right(path: Path, right: Right) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".part")
    scratch.write_text(json.dumps(asdict(right)) + "\n", encoding="utf-8")
    scratch.replace(path)


def read_right(path: Path) -> Right:
    """Raises BadInputError for a file that is none."""
    try:
        data: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Right(**{**data, "names": tuple(data["names"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{path} is no truth of an input ({error}): remove its folder, and it is made again") from error
