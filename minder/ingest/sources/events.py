"""events.jsonl and truth.json of a recording."""

from __future__ import annotations

import json
import logging
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from minder.model.clock import format_time, parse_time
from minder.model.errors import RecordingError
from minder.model.evidence import Signal, SignalKind

__all__ = ["Truth", "read_events", "read_truths", "signal_line", "write_truth"]

_log = logging.getLogger(__name__)
_KINDS = frozenset(typing.get_args(SignalKind)) - {"order"}  # a file's author is no operator
_FIELDS = {"machine": str, "message": str, "device": str, "rank": int, "pid": int, "generation": int}


@dataclass(frozen=True, slots=True)
class Truth:
    """What really happened in a labelled recording (docs/recordings.md); fault None: nothing did."""

    recording: str
    fault: str | None = None
    machine: str | None = None
    onset_s: float | None = None
    machines: tuple[str, ...] = ()
    end_s: float | None = None


def read_events(path: Path) -> tuple[Signal, ...]:
    """events.jsonl in time order; nothing where there is no file. Unknown kinds are left out with one warning, a last line
    that a crash cut off is left out. Raises RecordingError that names the line."""
    if not path.exists():
        return ()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"{path} cannot be read: {error}") from error
    lines = text.split("\n")
    unknown: set[str] = set()
    signals = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                _log.warning("%s: line %d is cut off and ignored", path, number)
                continue
            raise RecordingError(f"{path}: line {number} is no JSON object: {error}") from error
        signal = _signal(item, f"{path}: line {number}", unknown)
        if signal is not None:
            signals.append(signal)
    if unknown:
        _log.warning("%s: unknown kinds ignored: %s", path, ", ".join(sorted(unknown)))
    return tuple(sorted(signals, key=lambda signal: signal.time_s))


def _signal(item: Any, where: str, unknown: set[str]) -> Signal | None:
    if not isinstance(item, Mapping):
        raise RecordingError(f"{where} is no JSON object")
    kind = item.get("kind")
    if kind not in _KINDS:
        unknown.add(str(kind))
        return None
    try:
        time_s = parse_time(item["time"])
    except (KeyError, ValueError, AttributeError) as error:
        raise RecordingError(f'{where}: time is {item.get("time")!r}: give ISO 8601, like "2026-03-02T06:12:31Z"') from error
    fields: dict[str, Any] = {}
    for name, kind_of in _FIELDS.items():
        value = item.get(name)
        if value is None:
            continue
        if not isinstance(value, kind_of) or isinstance(value, bool):
            raise RecordingError(f"{where}: {name} is {value!r}: expected {kind_of.__name__}")
        fields[name] = value
    data = {key: value for key, value in item.items() if key not in _FIELDS and key not in ("time", "kind")}
    return Signal(time_s=time_s, kind=cast(SignalKind, kind), data=data, **fields)


def signal_line(signal: Signal) -> str:
    """A signal as one line of events.jsonl, newline included."""
    item: dict[str, Any] = {"time": format_time(signal.time_s), "kind": signal.kind}
    item |= {name: value for name in _FIELDS if (value := getattr(signal, name)) not in (None, "")}
    item |= {key: value for key, value in signal.data.items() if key not in item}
    return json.dumps(item) + "\n"


def read_truths(path: Path) -> tuple[Truth, ...]:
    """A truth.json: a list beside recordings, or one object inside a recording. Raises RecordingError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordingError(f"{path} cannot be read: {error}") from error
    items = data if isinstance(data, list) else [data]
    return tuple(_truth(item, path, index) for index, item in enumerate(items))


def _truth(item: Any, path: Path, index: int) -> Truth:
    where = f"{path}, entry {index + 1}"
    if not isinstance(item, Mapping):
        raise RecordingError(f"{where} is no object")
    try:
        onset_s, end_s = (None if item.get(key) is None else parse_time(item[key]) for key in ("onset", "end"))
    except (ValueError, AttributeError) as error:
        raise RecordingError(f"{where}: onset or end is no ISO 8601 time") from error
    machine = item.get("machine")
    machines = tuple(item.get("machines") or ((machine,) if machine else ()))
    return Truth(str(item.get("recording") or path.parent.name), item.get("fault"), machine, onset_s, machines, end_s)


def write_truth(path: Path, truths: Iterable[Truth], single: bool = False) -> None:
    """Write truth.json: a list, or one object inside a single recording."""
    items = [
        {
            "recording": truth.recording,
            "fault": truth.fault,
            "machine": truth.machine,
            "onset": None if truth.onset_s is None else format_time(truth.onset_s),
            "machines": list(truth.machines),
            "end": None if truth.end_s is None else format_time(truth.end_s),
        }
        for truth in truths
    ]
    path.write_text(json.dumps(items[0] if single else items, indent=1) + "\n", encoding="utf-8")
