"""Files that an installed minder needs: in the wheel as `minder/_data/`, in a checkout beside `minder/`."""

from __future__ import annotations

from pathlib import Path

from minder.errors import MinderError

__all__ = ["find_resource"]


def find_resource(name: str) -> Path:
    """Path of a packaged file, such as "datasets/recipes/plain.toml". Raises MinderError where it is missing."""
    package = Path(__file__).resolve().parent
    for root in (package / "_data", package.parent):
        if (root / name).exists():
            return root / name
    raise MinderError(f"packaged file {name} is missing from {package}: reinstall minder-cluster")
