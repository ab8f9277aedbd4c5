"""Ranks that entered one collective with different operations, sizes or data types.

Only what the operation needs to agree on is compared, by number of elements: an all_to_all of uneven splits, a reshaped tensor and
a barrier mismatch with no other call. Of a message only what is in flight counts. The first difference of a group counts; what follows it
are its echoes. The minority is to blame; where there is none, no rank is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from minder.diagnose.flight_recorder.channels import counterpart
from minder.diagnose.flight_recorder.progress import DONE, Progress
from minder.diagnose.flight_recorder.records import COLLECTIVE, Collection, Signature

__all__ = ["Field", "Mismatch", "elements", "find_mismatches"]

Field = Literal["type", "sizes", "dtype"]
_FIELDS: tuple[Field, ...] = ("type", "sizes", "dtype")
_BY_INPUT = {"reduce", "all_gather", "gather"}
_BY_OUTPUT = {"all_reduce", "allreduce_coalesced", "broadcast", "reduce_scatter", "scatter"}
_MIX = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One difference. is_message: of a send and its receive, whose sequence is that of point to point.

    by_rank: what each rank gave; minority: empty where no rank is outnumbered; pending: not complete somewhere.
    """

    group: int
    sequence: int
    field: Field
    by_rank: Mapping[int, str | list[list[int]]]
    minority: tuple[int, ...]
    pending: bool
    is_message: bool = False


def elements(sizes: Sequence[Sequence[int]]) -> int:
    """Number of elements of all tensors together."""
    return sum(prod(shape) for shape in sizes)


def find_mismatches(collection: Collection, progress: Progress) -> list[Mismatch]:
    """The first mismatch of every group, earliest groups first; then messages in flight whose two ends differ."""
    keys = {field: _field_keys(collection.signatures, field) for field in _FIELDS}
    found = []
    for number in range(len(collection.groups)):
        first = _first(collection, progress, number, keys)
        if first is not None:
            found.append(_describe(collection, progress, number, *first))
    return found + _messages(collection, progress)


def _messages(collection: Collection, progress: Progress) -> list[Mismatch]:
    """A send and its receive are two: neither is in the minority."""
    found: dict[tuple[int, int, int], Mismatch] = {}
    for op in (op for ops in progress.pending.values() for op in ops if op.kind != COLLECTIVE and op.peer is not None):
        level, number = counterpart(collection, progress, op)
        if number is None or op.peer is None or level == DONE:
            continue
        ends = {op.rank: collection.signatures[op.signature], op.peer: collection.signatures[number]}
        field = _differs(*ends.values())
        if field is not None:
            by_rank = {rank: _shown_message(ends[rank], field) for rank in sorted(ends)}
            found.setdefault((op.group, min(ends), max(ends)), Mismatch(op.group, op.sequence, field, by_rank, (), True, True))
    return list(found.values())


def _differs(one: Signature, other: Signature) -> Field | None:
    """In number of elements, or in data type where both tell it."""
    if elements(one.input_sizes or one.output_sizes) != elements(other.input_sizes or other.output_sizes):
        return "sizes"
    types = {signature.input_dtypes or signature.output_dtypes for signature in (one, other)} - {()}
    return "dtype" if len(types) > 1 else None


def _shown_message(signature: Signature, field: Field) -> str | list[list[int]]:
    if field == "dtype":
        return ", ".join(signature.input_dtypes or signature.output_dtypes)
    return [list(shape) for shape in signature.input_sizes or signature.output_sizes]


def _field_keys(signatures: Sequence[Signature], field: Field) -> np.ndarray:
    """Per signature a number that is equal where the field agrees; 0 where it is not to be compared."""
    numbers: dict[object, int] = {}
    keys = np.zeros(max(len(signatures), 1), np.uint64)
    for index, signature in enumerate(signatures):
        value = _value(signature, field)
        if value is not None:
            number = numbers.setdefault((signature.family, value) if field == "sizes" else value, len(numbers) + 1)
            keys[index] = number * _MIX & 0xFFFFFFFFFFFFFFFF
    return keys


def _value(signature: Signature, field: Field) -> object:
    family = signature.family
    if field == "type":
        return family
    if field == "sizes":
        if family in _BY_INPUT:
            return elements(signature.input_sizes)
        return elements(signature.output_sizes or signature.input_sizes) if family in _BY_OUTPUT else None
    if family in _BY_INPUT | _BY_OUTPUT:
        return signature.output_dtypes or signature.input_dtypes or None
    return None


def _first(collection: Collection, progress: Progress, number: int, keys: Mapping[Field, np.ndarray]) -> tuple[int, Field] | None:
    sequences, signatures, members = [], [], []
    for rank, track in progress.tracks[number].items():
        dump = collection.dumps[rank]
        rows = track.rows[dump.kind_E[track.rows] == COLLECTIVE]
        sequences.append(dump.sequence_E[rows])
        signatures.append(dump.signature_E[rows])
        members.append(np.full(len(rows), rank))
    if len(sequences) < 2:
        return None
    sequence_N, signature_N, rank_N = np.concatenate(sequences), np.concatenate(signatures), np.concatenate(members)
    earliest: tuple[int, Field] | None = None
    for field in _FIELDS:
        at = _first_difference(sequence_N, rank_N, keys[field][signature_N])
        if at is not None and (earliest is None or at < earliest[0]):
            earliest = (at, field)
    return earliest


def _first_difference(sequence_N: np.ndarray, rank_N: np.ndarray, key_N: np.ndarray) -> int | None:
    """The lowest sequence id at which two ranks differ; a coalesced batch is the sum of its operations."""
    use = key_N != 0
    if not use.any():
        return None
    place_N = sequence_N[use] * (int(rank_N.max()) + 1) + rank_N[use]
    order = np.argsort(place_N, kind="stable")
    place_N, key_N, at_N = place_N[order], key_N[use][order], sequence_N[use][order]
    firsts = np.flatnonzero(np.r_[True, place_N[1:] != place_N[:-1]])
    totals, at = np.add.reduceat(key_N, firsts), at_N[firsts]
    starts = np.flatnonzero(np.r_[True, at[1:] != at[:-1]])
    different = np.maximum.reduceat(totals, starts) != np.minimum.reduceat(totals, starts)
    return int(at[starts[different][0]]) if different.any() else None


def _describe(collection: Collection, progress: Progress, number: int, sequence: int, field: Field) -> Mismatch:
    by_rank: dict[int, str | list[list[int]]] = {}
    values: dict[int, object] = {}
    pending = False
    for rank, track in sorted(progress.tracks[number].items()):
        dump = collection.dumps[rank]
        rows = track.rows[(dump.sequence_E[track.rows] == sequence) & (dump.kind_E[track.rows] == COLLECTIVE)]
        pending = pending or (len(rows) > 0 and track.level(sequence) != DONE)
        signatures = [collection.signatures[index] for index in dump.signature_E[rows].tolist()]
        given = tuple(value for value in (_value(signature, field) for signature in signatures) if value is not None)
        if given:
            values[rank] = given
            by_rank[rank] = _shown(signatures[0], field)
    (most, count), *_ = Counter(values.values()).most_common()
    minority = tuple(rank for rank, value in values.items() if value != most) if 2 * count > len(values) else ()
    return Mismatch(number, sequence, field, by_rank, minority, pending)


def _shown(signature: Signature, field: Field) -> str | list[list[int]]:
    if field == "type":
        return signature.name
    if field == "dtype":
        return ", ".join(signature.output_dtypes or signature.input_dtypes)
    sizes = signature.input_sizes if signature.family in _BY_INPUT else signature.output_sizes or signature.input_sizes
    return [list(shape) for shape in sizes]
