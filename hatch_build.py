"""The wheel carries models/ and datasets/ as minder/_data/ (minder/model/resources.py). An editable install finds them in the checkout, and
makes nothing but the two packages importable: with the checkout on sys.path, its `datasets/` would pass for Hugging Face's package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_CHECKOUT_ONLY = ("benchmark/sample", "benchmark/entries")  # and the cases' archives: for those who enter the benchmark


class CarryData(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the data folders to a wheel that is not editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            build_data["force_include"] |= {str(path): f"minder/_data/{path}" for path in _carried(Path(self.root))}


def _carried(root: Path) -> Iterator[Path]:
    for folder in ("models", "datasets"):
        for path in sorted((root / folder).rglob("*")):
            inside = path.relative_to(root / folder).as_posix()
            if path.is_file() and path.suffix not in (".pyc", ".xz") and not inside.startswith(_CHECKOUT_ONLY):
                yield path.relative_to(root)
