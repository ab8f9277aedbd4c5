"""What the registry holds, asked in another process and remembered for a minute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from minder.record.api.standbys import ModelVersion
from minder.record.registry.listing import has_registry

__all__ = ["ModelList", "Registered"]

_FRESH_S = 60.0
_PATIENCE_S = 90.0
_MOST_TRAINING = 40


class Registered:
    """One answer of the registry."""

    def __init__(self, state: str, detail: str, versions: tuple[ModelVersion, ...] = ()) -> None:
        self.state, self.detail, self.versions = state, detail, versions


class ModelList:
    """Safe for several threads; only one asks at a time, the others wait for its answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: Registered | None = None
        self._asked_s = 0.0

    def read(self) -> Registered:
        if not has_registry():
            return Registered("none", "no registry on this machine: `minder train` makes one, or set MLFLOW_TRACKING_URI")
        with self._lock:
            if self._known is None or time.monotonic() - self._asked_s > _FRESH_S:
                self._known = _ask()
                self._asked_s = time.monotonic()
            return self._known


def _ask() -> Registered:
    command = [sys.executable, "-m", "minder.record.registry.listing"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False, env=dict(os.environ))
        answer: Mapping[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return Registered("unreachable", f"the registry does not answer ({type(error).__name__})")
    if "error" in answer:
        return Registered("unreachable", str(answer["error"])[:300])
    return Registered("available", "", tuple(_version(item) for item in answer["versions"]))


def _version(item: Mapping[str, Any]) -> ModelVersion:
    kept = {name: value[:500] for name, value in item["training"].items() if not name.startswith("mlflow.")}
    training = dict(list(kept.items())[:_MOST_TRAINING])
    return ModelVersion(version=item["version"], champion=item["champion"], training=training, judged=item.get("judged", {}))
