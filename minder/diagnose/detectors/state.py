"""What a stage remembers: a dataclass of arrays by machine and by metric, which follow when machines or metrics come, go or change places.

Legend of axes: K metrics or series, M machines, L past rows or offsets in time; a field that is a plain number belongs to the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

__all__ = ["LAGS", "Moves", "Named", "State", "per"]

LAGS = 31  # length of the axis "L", where none is given


def per(axes: str, empty: float = 0.0, lags: int = LAGS, kind: type[np.floating] | None = None) -> Any:
    """A field that holds an array over axes of K, L and M. empty: what a newcomer starts with. kind: by itself the large arrays are half as
    wide, since speed is memory traffic, and the others hold times, which need the full width."""
    wide = kind or (np.float32 if len(axes) > 1 else np.float64)
    shape = tuple(lags if axis == "L" else 0 for axis in axes)
    return field(default_factory=lambda: np.full(shape, empty, dtype=wide), metadata={"axes": axes, "empty": empty})


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
            old = getattr(self, name)
            new = np.full(_sizes(axes, old, moves.metrics, moves.machines), empty, dtype=old.dtype)
            there = {"K": moves.there_k, "M": moves.there_m}
            here = {"K": moves.here_k, "M": moves.here_m}
            all_l = [range(length) for length in old.shape]
            to = np.ix_(*(there.get(axis, every) for axis, every in zip(axes, all_l, strict=True)))
            new[to] = old[np.ix_(*(here.get(axis, every) for axis, every in zip(axes, all_l, strict=True)))]
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
        arrays = {name: axes for name, axes, _ in _arrays(self)}
        for item in fields(self):  # type: ignore[arg-type]
            written, there = record[item.name], getattr(self, item.name)
            if isinstance(there, State):
                there.load(written, metrics, machines)
            elif item.name in arrays:
                sizes = _sizes(arrays[item.name], there, metrics, machines)
                setattr(self, item.name, np.array([_number(x) for x in written], dtype=np.float64).reshape(sizes).astype(there.dtype))
            elif isinstance(there, dict):
                made = {str(name): np.array(rows, dtype=np.float32) for name, rows in written.items()}
                setattr(self, item.name, made)
            else:
                setattr(self, item.name, _number(written))


class Named:
    """A state with the names of its machines and metrics, which it follows."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._machines: tuple[str, ...] = ()
        self._metrics: tuple[str, ...] = ()

    def follow(self, machines: Sequence[str], metrics: Sequence[str]) -> None:
        machines, metrics = tuple(machines), tuple(metrics)
        if (machines, metrics) != (self._machines, self._metrics):
            self._state.follow(Moves.between((self._machines, machines), (self._metrics, metrics)))
            self._machines, self._metrics = machines, metrics

    def record(self) -> dict[str, Any]:
        """JSON-serialisable, as `State.record`."""
        return {"machines": list(self._machines), "metrics": list(self._metrics), **self._state.record()}

    def load(self, record: Mapping[str, Any]) -> None:
        """Take back what `record` gave. Raises as `State.load` does."""
        self._machines, self._metrics = tuple(record["machines"]), tuple(record["metrics"])
        self._state.load(record, len(self._metrics), len(self._machines))


def _parts(state: State) -> list[State]:
    """States within a state."""
    return [part for item in fields(state) if isinstance(part := getattr(state, item.name), State)]  # type: ignore[arg-type]


def _arrays(state: State) -> list[tuple[str, str, float]]:
    """(name, axes, what a newcomer starts with) of each array."""
    found = fields(state)  # type: ignore[arg-type]
    return [(item.name, item.metadata["axes"], item.metadata["empty"]) for item in found if "axes" in item.metadata]


def _sizes(axes: str, old: np.ndarray, metrics: int, machines: int) -> tuple[int, ...]:
    """The shape for so many metrics and machines; other axes keep their length."""
    return tuple({"K": metrics, "M": machines}.get(axis, length) for axis, length in zip(axes, old.shape, strict=True))


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
