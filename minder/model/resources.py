"""Files that an installed minder needs (in the wheel as `minder/_data/`, in a checkout beside `minder/`), and where it keeps its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from minder.model.errors import MinderError

__all__ = ["child_python_path", "default_state_dir", "find_resource"]


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


def child_python_path() -> dict[str, str]:
    """What a child that starts with -P needs in its environment to find a checkout that is used from its own folder."""
    root = str(Path(__file__).resolve().parents[2])
    if root != str(Path.cwd()) or root in sys.path[1:]:
        return {}
    known = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{known}{os.pathsep}{root}" if known else root}
