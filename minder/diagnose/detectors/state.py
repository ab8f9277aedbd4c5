"""What a stage remembers: a dataclass of arrays by machine and by metric, which follow when machines or metrics come, go or change places.

Legend of axes: K metrics, M machines, L past rows or offsets in time; a field that is a plain number belongs to the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

__all__ = ["LAGS", "Moves", "State", "per"]

LAGS = 31  # length of the axis "L"


def per(axes: str, empty: float = 0.0) -> Any:
    """A field that holds an array over "KM", "LM", "M", "K" or "L". empty: what a newcomer starts with."""
    return field(default_factory=lambda: _made(axes, empty, 0, 0), metadata={"axes": axes, "empty": empty})


@dataclass(frozen=True, slots=True)
class Moves:
    """From an order of machines and metrics to another: sizes of the new one, and of what both have the places there and here."""

    machines: int
    metrics: int
    there_m: list[int]
    here_m: list[int]
    there_k: list[int]
    here_k: list[int]

    @classmethod
    def between(cls, machines: tuple[Sequence[str], Sequence[str]], metrics: tuple[Sequence[str], Sequence[str]]) -> Moves:
        """Each as (old, new)."""
        return cls(len(machines[1]), len(metrics[1]), *_places(*machines), *_places(*metrics))


class State:
    """Base of each stage's own dataclass."""

    __slots__ = ()

    def follow(self, moves: Moves) -> None:
        """Take on another order; what is known comes along, others are forgotten."""
        for part in _parts(self):
            part.follow(moves)
        for name, axes, empty in _arrays(self):
            old, new = getattr(self, name), _made(axes, empty, moves.metrics, moves.machines)
            if axes == "KM":
                new[np.ix_(moves.there_k, moves.there_m)] = old[np.ix_(moves.here_k, moves.here_m)]
            elif axes == "LM":
                new[:, moves.there_m] = old[:, moves.here_m]
            elif axes == "M":
                new[moves.there_m] = old[moves.here_m]
            elif axes == "K":
                new[moves.there_k] = old[moves.here_k]
            else:
                new = old
            setattr(self, name, new)

    def forget(self, *names: str) -> None:
        """These start afresh; all, where none is named."""
        for item in fields(self):  # type: ignore[arg-type]
            if names and item.name not in names:
                continue
            if isinstance(part := getattr(self, item.name), State):
                part.forget()
            elif "axes" in item.metadata:
                setattr(self, item.name, np.full_like(getattr(self, item.name), item.metadata["empty"]))
            elif item.default_factory is not None and callable(item.default_factory):
                setattr(self, item.name, item.default_factory())
            else:
                setattr(self, item.name, item.default)

    def record(self) -> dict[str, Any]:
        """JSON-serialisable; NaN becomes null, infinities stay as text."""
        return {item.name: _to_json(getattr(self, item.name)) for item in fields(self)}  # type: ignore[arg-type]

    def load(self, record: Mapping[str, Any], metrics: int, machines: int) -> None:
        """Take back what `record` gave. Raises KeyError, TypeError or ValueError for anything else."""
        arrays = {name: (axes, empty) for name, axes, empty in _arrays(self)}
        for item in fields(self):  # type: ignore[arg-type]
            written, there = record[item.name], getattr(self, item.name)
            if isinstance(there, State):
                there.load(written, metrics, machines)
            elif item.name in arrays:
                axes, empty = arrays[item.name]
                shape = _made(axes, empty, metrics, machines)
                setattr(self, item.name, np.array([_number(x) for x in written], dtype=np.float64).reshape(shape.shape).astype(shape.dtype))
            elif isinstance(there, dict):
                made = {str(name): np.array(rows, dtype=np.float32) for name, rows in written.items()}
                setattr(self, item.name, made)
            else:
                setattr(self, item.name, _number(written))


def _parts(state: State) -> list[State]:
    """States within a state."""
    return [part for item in fields(state) if isinstance(part := getattr(state, item.name), State)]  # type: ignore[arg-type]


def _arrays(state: State) -> list[tuple[str, str, float]]:
    """(name, axes, what a newcomer starts with) of each array."""
    found = fields(state)  # type: ignore[arg-type]
    return [(item.name, item.metadata["axes"], item.metadata["empty"]) for item in found if "axes" in item.metadata]


def _made(axes: str, empty: float, metrics: int, machines: int) -> np.ndarray:
    """The large arrays are half as wide: speed is memory traffic. Times need the full width."""
    size = {"K": metrics, "M": machines, "L": LAGS}
    return np.full(tuple(size[axis] for axis in axes), empty, dtype=np.float32 if len(axes) == 2 else np.float64)


def _places(old: Sequence[str], new: Sequence[str]) -> tuple[list[int], list[int]]:
    """(places in new, places in old) of the names that both have."""
    place = {name: index for index, name in enumerate(old)}
    both = [(index, place[name]) for index, name in enumerate(new) if name in place]
    return [pair[0] for pair in both], [pair[1] for pair in both]


def _to_json(value: Any) -> Any:
    if isinstance(value, State):
        return value.record()
    if isinstance(value, dict):
        return {name: [[[_written(x) for x in row] for row in part] for part in past.tolist()] for name, past in value.items()}
    if isinstance(value, np.ndarray):
        return [_written(x) for x in value.astype(float).ravel().tolist()]
    return _written(float(value))


def _written(value: float) -> Any:
    return None if value != value else value if abs(value) != np.inf else str(value)


def _number(written: Any) -> float:
    return float("nan") if written is None else float(written)
