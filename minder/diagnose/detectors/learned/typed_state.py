"""State of a detector: a dataclass of arrays over machines and series, which come and go by name.

Legend: K series, M machines, L lags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

import numpy as np

__all__ = ["Axes", "fresh", "from_record", "moved", "to_record"]

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Axes:
    """The annotation of a field that holds an array. shape: of "LKM"; empty: what stands for a machine or a series that is new."""

    shape: str
    empty: float = 0.0

    @property
    def kind(self) -> type[np.floating[Any]]:
        """Numbers may be times in UTC seconds; of arrays there are gigabytes a day to go through."""
        return np.float32 if self.shape else np.float64


def _axes(kind: Any) -> Mapping[str, Axes]:
    return {name: hint.__metadata__[0] for name, hint in get_type_hints(kind, include_extras=True).items()}


def fresh(kind: type[S], sizes: Mapping[str, int]) -> S:
    """A state without a past. sizes: length of each axis."""
    made = {name: np.full(tuple(sizes[axis] for axis in axes.shape), axes.empty, axes.kind) for name, axes in _axes(kind).items()}
    return kind(**made)


def moved(state: S, old: Mapping[str, Sequence[str]], new: Mapping[str, Sequence[str]], sizes: Mapping[str, int]) -> S:
    """The state for other machines or series (axes K, M by name); those that stay keep what was learned."""
    there = fresh(type(state), sizes)
    kept = {}
    for axis, names in new.items():
        place = {name: i for i, name in enumerate(old[axis])}
        both = [(place[name], j) for j, name in enumerate(names) if name in place]
        kept[axis] = (np.array([i for i, _ in both], dtype=np.int64), np.array([j for _, j in both], dtype=np.int64))
    for name, axes in _axes(type(state)).items():
        source, target = getattr(state, name), getattr(there, name)
        if not axes.shape:
            setattr(there, name, source.copy())
            continue
        taken = [kept[axis][0] if axis in kept else np.arange(sizes[axis]) for axis in axes.shape]
        put = [kept[axis][1] if axis in kept else np.arange(sizes[axis]) for axis in axes.shape]
        target[np.ix_(*put)] = source[np.ix_(*taken)]
    return there


def to_record(state: Any) -> dict[str, Any]:
    """JSON-serialisable; NaN is null."""
    arrays = {name: getattr(state, name) for name in _axes(type(state))}
    return {name: np.asarray(np.where(np.isnan(array), None, array.astype(object))).tolist() for name, array in arrays.items()}


def from_record(kind: type[S], record: Mapping[str, Any], sizes: Mapping[str, int]) -> S:
    """The state that `to_record` wrote. Raises ValueError for arrays of other sizes."""
    made = {
        name: np.array(record[name], dtype=axes.kind).reshape([sizes[axis] for axis in axes.shape]) for name, axes in _axes(kind).items()
    }
    return kind(**made)
