"""Arrays of which a detector knows only at run time how many it remembers, by machine and metric name: they follow when machines or metrics
come, go or change places, and they can be written as JSON. The default detector's are typed (`state.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["Memory"]


class Memory:
    """Named arrays over "KM", "M", "K" or "" (one number). `fill` is what a newcomer starts with."""

    def __init__(self, fields: Mapping[str, tuple[str, float]]) -> None:
        self._fields = dict(fields)
        self.machines: tuple[str, ...] = ()
        self.metrics: tuple[str, ...] = ()
        self._arrays: dict[str, np.ndarray] = {}
        self.follow((), ())

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __setitem__(self, name: str, values: np.ndarray) -> None:
        self._arrays[name] = values

    def number(self, name: str) -> float:
        return float(self._arrays[name])

    def set_number(self, name: str, value: float) -> None:
        self._arrays[name] = np.array(value)

    def follow(self, machines: Sequence[str], metrics: Sequence[str]) -> None:
        """Take on this order of machines and metrics; what is known of them comes along, others are forgotten."""
        machines, metrics = tuple(machines), tuple(metrics)
        if self._arrays and machines == self.machines and metrics == self.metrics:
            return
        from_m = _sources(self.machines, machines)
        from_k = _sources(self.metrics, metrics)
        for name, (axes, fill) in self._fields.items():
            old = self._arrays.get(name, np.full(_shape(axes, 0, 0), fill, dtype=_dtype(axes)))
            new = np.full(_shape(axes, len(metrics), len(machines)), fill, dtype=_dtype(axes))
            if axes == "KM":
                new[np.ix_(from_k[0], from_m[0])] = old[np.ix_(from_k[1], from_m[1])]
            elif axes == "M":
                new[from_m[0]] = old[from_m[1]]
            elif axes == "K":
                new[from_k[0]] = old[from_k[1]]
            else:
                new = old
            self._arrays[name] = new
        self.machines, self.metrics = machines, metrics

    def state(self) -> dict[str, Any]:
        """JSON-serialisable; NaN becomes null, infinities stay as text."""
        return {
            "machines": list(self.machines),
            "metrics": list(self.metrics),
            "arrays": {name: _to_json(array) for name, array in self._arrays.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` gave. Fields that the state does not have start afresh."""
        machines, metrics = tuple(state["machines"]), tuple(state["metrics"])
        self._arrays = {}
        self.machines, self.metrics = (), ()
        self.follow(machines, metrics)
        for name, values in state["arrays"].items():
            if name in self._fields:
                axes = self._fields[name][0]
                self._arrays[name] = _from_json(values).reshape(_shape(axes, len(metrics), len(machines))).astype(_dtype(axes))


def _sources(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """(places in new, places in old) of the names that both have."""
    place = {name: index for index, name in enumerate(old)}
    both = [(index, place[name]) for index, name in enumerate(new) if name in place]
    return [pair[0] for pair in both], [pair[1] for pair in both]


def _shape(axes: str, metrics: int, machines: int) -> tuple[int, ...]:
    return {"KM": (metrics, machines), "M": (machines,), "K": (metrics,), "": ()}[axes]


def _dtype(axes: str) -> type[np.floating]:
    """The large arrays are half as wide: speed is memory traffic. Times need the full width."""
    return np.float32 if len(axes) == 2 else np.float64


def _to_json(array: np.ndarray) -> Any:
    return [None if value != value else value if abs(value) != np.inf else str(value) for value in array.astype(float).ravel().tolist()]


def _from_json(values: Any) -> np.ndarray:
    return np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)
