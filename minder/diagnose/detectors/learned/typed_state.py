"""State of a detector as a dataclass of arrays over machines and series, which come and go by name. Legend: K series, M machines, L lags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np

__all__ = ["axes", "fresh", "from_record", "moved", "to_record"]

S = TypeVar("S")


def axes(shape: str, empty: float = 0.0) -> Any:
    """A field that holds an array. shape: its axes, of "LKM"; empty: what stands for a machine or a series that is new."""
    return field(metadata={"axes": shape, "empty": empty})


def fresh(kind: type[S], sizes: Mapping[str, int]) -> S:
    """A state without a past. sizes: length of each axis.

    >>> @dataclass
    ... class Small:
    ...     level_KM: np.ndarray = axes("KM", 1.0)
    >>> fresh(Small, {"K": 1, "M": 2}).level_KM.tolist()
    [[1.0, 1.0]]
    """
    made = {}
    for item in fields(kind):  # type: ignore[arg-type]
        made[item.name] = np.full(tuple(sizes[axis] for axis in item.metadata["axes"]), item.metadata["empty"], dtype=np.float64)
    return kind(**made)


def moved(state: S, old: Mapping[str, Sequence[str]], new: Mapping[str, Sequence[str]], sizes: Mapping[str, int]) -> S:
    """The state for other machines or series (axes K, M by name); who stays keeps what was learned."""
    there = fresh(type(state), sizes)
    kept = {}
    for axis, names in new.items():
        place = {name: i for i, name in enumerate(old[axis])}
        both = [(place[name], j) for j, name in enumerate(names) if name in place]
        kept[axis] = (np.array([i for i, _ in both], dtype=np.int64), np.array([j for _, j in both], dtype=np.int64))
    for item in fields(state):  # type: ignore[arg-type]
        shape = item.metadata["axes"]
        source, target = getattr(state, item.name), getattr(there, item.name)
        if not shape:
            setattr(there, item.name, source.copy())
            continue
        taken = [kept[axis][0] if axis in kept else np.arange(sizes[axis]) for axis in shape]
        put = [kept[axis][1] if axis in kept else np.arange(sizes[axis]) for axis in shape]
        target[np.ix_(*put)] = source[np.ix_(*taken)]
    return there


def to_record(state: Any) -> dict[str, Any]:
    """JSON-serialisable; NaN is null."""
    return {
        item.name: np.where(np.isnan(getattr(state, item.name)), None, getattr(state, item.name).astype(object)).tolist()
        for item in fields(state)
    }


def from_record(kind: type[S], record: Mapping[str, Any]) -> S:
    """The state that `to_record` wrote."""
    return kind(**{item.name: np.array(record[item.name], dtype=np.float64) for item in fields(kind)})  # type: ignore[arg-type]
