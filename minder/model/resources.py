"""Files that an installed minder needs (in the wheel as `minder/_data/`, in a checkout beside `minder/`), and where it keeps its own."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from minder.model.errors import MinderError

__all__ = ["child_python_path", "default_state_dir", "find_resource"]

_PACKAGE = Path(__file__).resolve().parents[1]


def find_resource(name: str) -> Path:
    """Path of a packaged file, such as "datasets/recipes/plain.toml". Raises MinderError where it is missing."""
    for root in (_PACKAGE / "_data", _PACKAGE.parent):
        if (root / name).exists():
            return root / name
    raise MinderError(f"packaged file {name} is missing from {_PACKAGE}: reinstall minder-cluster")


def default_state_dir() -> Path:
    """Where ledger, job state and registry live: $MINDER_STATE_DIR, or ~/.local/state/minder."""
    return Path(os.environ.get("MINDER_STATE_DIR") or Path.home() / ".local/state/minder")


def child_python_path() -> dict[str, str]:
    """What a child that starts with -P needs in its environment to find a checkout that is used from its own folder."""
    root = str(_PACKAGE.parent)
    if root != str(Path.cwd()) or root in sys.path[1:] or _is_mapped():
        return {}
    known = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{known}{os.pathsep}{root}" if known else root}


def _is_mapped() -> bool:
    """Whether an editable install maps this package: then a child finds it without its checkout on the path, where folders such as
    `datasets/` would pass for packages of others."""
    finders = (finder for finder in sys.meta_path if finder is not PathFinder)
    specs = (finder.find_spec("minder", None) for finder in finders if hasattr(finder, "find_spec"))
    return any(spec is not None and spec.origin is not None and Path(spec.origin).parent == _PACKAGE for spec in specs)
