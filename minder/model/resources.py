"""Files that an installed minder needs (in the wheel as `minder/_data/`, in a checkout beside `minder/`), and where it keeps its own."""

from __future__ import annotations

import os
from pathlib import Path

from minder.model.errors import MinderError

__all__ = ["default_state_dir", "find_resource"]


def find_resource(name: str) -> Path:
    """Path of a packaged file, such as "datasets/recipes/plain.toml". Raises MinderError where it is missing."""
    package = Path(__file__).resolve().parents[1]
    for root in (package / "_data", package.parent):
        if (root / name).exists():
            return root / name
    raise MinderError(f"packaged file {name} is missing from {package}: reinstall minder-cluster")


def default_state_dir() -> Path:
    """Where ledger, job state and registry live: $MINDER_STATE_DIR, or ~/.local/state/minder."""
    return Path(os.environ.get("MINDER_STATE_DIR") or Path.home() / ".local/state/minder")
