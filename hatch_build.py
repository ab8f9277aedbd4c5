"""The wheel carries models/ and datasets/ as minder/_data/ (minder/model/resources.py). An editable install finds them in the checkout, and
makes nothing but the two packages importable: with the checkout on sys.path, its `datasets/` would pass for Hugging Face's package."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CarryData(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the data folders to a wheel that is not editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            build_data["force_include"] |= {folder: f"minder/_data/{folder}" for folder in ("models", "datasets")}
