"""Every registered version as JSON: `python -m minder.record.registry.listing`.

A process of its own, since MLflow is heavy and may hang.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from minder.model.errors import MinderError
from minder.model.resources import default_state_dir

__all__ = ["has_registry", "main"]


def has_registry() -> bool:
    """Whether there is one to ask, without making an empty one."""
    return bool(os.environ.get("MLFLOW_TRACKING_URI")) or (Path(default_state_dir()) / "mlflow.db").exists()


def main() -> int:
    """Prints {"versions": [...]}, newest first, or {"error": one line}."""
    try:
        from minder.record.registry.mlflow_registry import Registry

        registry = Registry()
        champion = registry.champion()
        crowned = None if champion is None else champion.number
        versions = [
            {"version": item.number, "champion": item.number == crowned, "training": dict(item.training), "judged": dict(item.judged)}
            for item in registry.versions()
        ]
        print(json.dumps({"versions": versions}))
    except ImportError as error:
        print(json.dumps({"error": f"{error.name} is not installed: run `pip install 'minder-cluster[models]'`"}))
    except MinderError as error:
        print(json.dumps({"error": str(error)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
