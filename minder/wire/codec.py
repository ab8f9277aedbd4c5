"""Records of `minder.model` to JSON and back, by their type hints.

Unknown keys are ignored (a newer peer may send more), missing ones take their default; a wrong type is a WireError. Words are open: a
Literal of strings says what this version writes, and any string is read. A ledger outlives the version that wrote it, and a job may have
machines of two versions: a word from the future is shown as it is, and matches nothing that this version acts on.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from minder.model.errors import WireError

__all__ = ["from_json", "to_json"]

T = TypeVar("T")


def to_json(record: Any) -> Any:
    """Dataclasses become objects, tuples and sets become lists; what JSON has stays."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {field.name: to_json(getattr(record, field.name)) for field in dataclasses.fields(record)}
    if isinstance(record, Mapping):
        return {str(key): to_json(value) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        return [to_json(item) for item in record]
    if isinstance(record, (set, frozenset)):
        return sorted(to_json(item) for item in record)
    return record


def from_json(cls: type[T], data: Any) -> T:
    """Build a record of `cls` from decoded JSON. Raises WireError that names the field.

    >>> from minder.model.evidence import Signal
    >>> from_json(Signal, {"time_s": 1.0, "kind": "log", "message": "x"}).message
    'x'
    """
    return typing.cast(T, _decode(cls, data, cls.__name__))


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls, localns={"np": types.SimpleNamespace(ndarray=object)})


@functools.lru_cache(maxsize=4096)  # a controller decodes thousands of records a second, of the same few kinds
def _parts(hint: Any) -> tuple[bool, Any, tuple[Any, ...]]:
    """Whether a hint is a dataclass, its origin and its arguments."""
    return dataclasses.is_dataclass(hint), typing.get_origin(hint), typing.get_args(hint)


def _decode(hint: Any, data: Any, where: str) -> Any:
    is_record, origin, args = _parts(hint)
    if is_record:
        return _decode_record(typing.cast(type, hint), data, where)
    if hint is Any:
        return data
    if origin in (typing.Union, types.UnionType):
        if data is None and type(None) in args:
            return None
        return _decode(next(arg for arg in args if arg is not type(None)), data, where)
    if origin is typing.Literal:
        if data not in args and not (isinstance(data, str) and all(isinstance(arg, str) for arg in args)):
            raise WireError(f"{where} is {data!r}: expected a word like {', '.join(map(str, args))}")
        return data
    if origin in (tuple, list, Sequence, frozenset):
        return _decode_sequence(origin, args, data, where)
    if origin in (dict, Mapping):
        return _decode_mapping(args, data, where)
    return _decode_scalar(hint, data, where)


def _decode_record(cls: type, data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise WireError(f"{where} is {type(data).__name__}: expected an object")
    hints = _hints(cls)
    values = {
        field.name: _decode(hints[field.name], data[field.name], f"{where}.{field.name}")
        for field in dataclasses.fields(cls)
        if field.name in data
    }
    try:
        return cls(**values)
    except TypeError as error:
        raise WireError(f"{where}: {error}") from error


def _decode_sequence(origin: Any, args: tuple[Any, ...], data: Any, where: str) -> Any:
    if not isinstance(data, (list, tuple)):
        raise WireError(f"{where} is {type(data).__name__}: expected a list")
    if origin is tuple and args and Ellipsis not in args:
        return tuple(_decode(arg, item, where) for arg, item in zip(args, data, strict=False))
    items = [_decode(args[0] if args else Any, item, f"{where}[{index}]") for index, item in enumerate(data)]
    return frozenset(items) if origin is frozenset else items if origin is list else tuple(items)


def _decode_mapping(args: tuple[Any, ...], data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise WireError(f"{where} is {type(data).__name__}: expected an object")
    key_type, value_type = args if args else (str, Any)
    try:
        keys = [int(key) if key_type is int else key for key in data]
    except (TypeError, ValueError) as error:
        raise WireError(f"{where} has a key that is no whole number: {error}") from error
    return {key: _decode(value_type, value, f"{where}.{key}") for key, value in zip(keys, data.values(), strict=True)}


def _decode_scalar(hint: Any, data: Any, where: str) -> Any:
    if hint is float and isinstance(data, (int, float)) and not isinstance(data, bool):
        try:
            return float(data)
        except OverflowError as error:
            raise WireError(f"{where} is a number beyond any measure") from error
    if hint is int and isinstance(data, float) and data.is_integer():
        return int(data)
    if isinstance(hint, type) and (not isinstance(data, hint) or (hint is int and isinstance(data, bool))):
        raise WireError(f"{where} is {data!r}: expected {hint.__name__}")
    return data
