"""What a verb needs beyond the base install, decided in one place.

`pip install minder-cluster` holds what runs beside jobs: agent, launcher, worker, and the client of a service. All that decides, replays
or draws needs the extra `controller`. A verb asks before it imports anything: an import that fails later is a bug of ours, and shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from minder.model.errors import MissingExtraError

__all__ = ["CONTROLLER_MODULES", "LIGHT_VERBS", "demand_controller", "demand_for", "missing_extra"]

CONTROLLER_MODULES = ("alembic", "matplotlib", "numpy", "polars", "prometheus_api_client", "sqlalchemy", "yaml")
TORCH_VERBS = frozenset({"demo", "run"})  # ranks meet at a store of torch's, which these start
LIGHT_VERBS = frozenset({"agent", "cache", "doctor", "launch"})
# These ask a service: nothing here computes. `report` and `incidents cost` ask it too, and then count and draw here.
SERVED_VERBS = frozenset({"decision", "incidents", "job", "machine", "maintenance", "pause", "unpause"})
COUNTED_HERE = (("incidents", "cost"),)

OTHER_EXTRAS = {
    "torch": "torch",
    "scipy": "placement",
    "sklearn": "models",
    "pyod": "models",
    "mlflow": "models",
    "safetensors": "models",
    "fastapi": "serve",
    "multipart": "serve",
}


def demand_for(verb: str, words: Sequence[str], *, served: bool) -> None:
    """`words` are the verb's own arguments, `served` whether a service is named. Raises MissingExtraError."""
    if verb in LIGHT_VERBS or "--help" in _own(words):
        return
    if (verb, *words[:1]) == ("machine", "test") and "--local" in words:  # on a machine that has the agent and no more
        return
    counted = any((verb, *words[: len(path) - 1]) == path for path in COUNTED_HERE)
    if not (served and verb in SERVED_VERBS) or counted:
        demand_controller()
    if verb in TORCH_VERBS:
        MissingExtraError.demand("torch", "torch")


def demand_controller() -> None:
    """Raises MissingExtraError, which names what to install, where a library of the extra is absent. Imports none of them."""
    for name in CONTROLLER_MODULES:
        MissingExtraError.demand(name, "controller")


def missing_extra(error: ModuleNotFoundError) -> MissingExtraError | None:
    """For libraries that a verb needs only in part, such as torch; None where the module belongs to no extra."""
    name = (error.name or "").split(".")[0]
    return MissingExtraError.of(name, OTHER_EXTRAS[name]) if name in OTHER_EXTRAS else None


def _own(words: Sequence[str]) -> Sequence[str]:
    """Without what stands behind `--`, which is a script's."""
    return words[: words.index("--")] if "--" in words else words
