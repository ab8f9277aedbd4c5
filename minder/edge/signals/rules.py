"""What every explicit signal means: the rows of signal_rules.toml, and which row a signal is.

A kernel line is read here by the same parser that agents use, so a recording that holds only the lines and a live job come to the same.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from minder.edge.signals.kernel_log import parse_kernel_line, split_log_line
from minder.model.errors import ConfigError
from minder.model.evidence import Signal, Tier

__all__ = ["SignalRow", "Witness", "event_of", "load_signal_rules", "read_signal"]

SignalTier = Literal["evict", "page", "watch", "none"]
Witness = Literal["stopped", "same_class", "machine_evidence"]
_CLASSES = ("gpu", "nvlink", "nic", "link", "pcie", "memory", "host", "disk", "storage", "monitoring", "process", "job")
_KEYS = {"event", "class", "tier", "seconded", "second", "within_s", "names", "stands_s", "rule", "source"}


@dataclass(frozen=True, slots=True)
class SignalRow:
    """One row of signal_rules.toml, whose head explains its fields. tier None: nothing. Times in seconds."""

    event: str
    part: str
    tier: Tier | None
    source: str
    seconded: Tier | None = None
    second: tuple[Witness, ...] = ()
    within_s: float = 60.0
    names: Literal["machine", "job"] = "machine"
    stands_s: float = 60.0
    rule: str = "signals"

    @property
    def is_hardware(self) -> bool:
        """Whether it is worth a page and speaks of a machine's own parts, not of a program or of what stands behind a network."""
        return self.part not in ("process", "job", "storage", "monitoring", "link") and self.tier in ("page", "evict")


@functools.cache
def load_signal_rules(path: Path | None = None) -> Mapping[str, SignalRow]:
    """All rows by event. path: a table of a test's own. Raises ConfigError that names the row."""
    path = path or Path(__file__).with_name("signal_rules.toml")
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))["signal"]
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise ConfigError(f"signal rules {path}: {error}") from error
    rows = [_row(entry, path) for entry in entries]
    return {row.event: row for row in rows}


def _row(entry: dict[str, Any], path: Path) -> SignalRow:
    where = f"signal rules {path}, event {entry.get('event')!r}"
    for name in ("event", "class", "tier", "source"):
        if not entry.get(name):
            raise ConfigError(f"{where}: {name} is missing")
    unknown = entry.keys() - _KEYS
    if unknown:
        raise ConfigError(f"{where}: unknown key {sorted(unknown)[0]!r}")
    if entry["class"] not in _CLASSES:
        raise ConfigError(f"{where}: class is {entry['class']!r}, expected one of {', '.join(_CLASSES)}")
    second = tuple(entry.get("second", ()))
    if bool(second) != ("seconded" in entry) or not set(second) <= set(get_args(Witness)):
        raise ConfigError(f"{where}: seconded and second belong together; second may hold {', '.join(get_args(Witness))}")
    return SignalRow(
        event=str(entry["event"]),
        part=str(entry["class"]),
        tier=_tier(entry["tier"], where),
        source=str(entry["source"]),
        seconded=_tier(entry["seconded"], where) if second else None,
        second=second,
        within_s=float(entry.get("within_s", 60.0)),
        names="job" if entry.get("names") == "job" else "machine",
        stands_s=float(entry.get("stands_s", 60.0)),
        rule=str(entry.get("rule", "signals")),
    )


def _tier(value: Any, where: str) -> Tier | None:
    if value not in get_args(SignalTier):
        raise ConfigError(f"{where}: a tier is {value!r}, expected one of {', '.join(get_args(SignalTier))}")
    return None if value == "none" else value


def read_signal(signal: Signal) -> Signal:
    """A kernel signal with what its line says. Recordings may hold the line alone, and agents of another version may know less of it."""
    if signal.kind != "kernel" or not signal.message or "sign" in signal.data:
        return signal
    found = parse_kernel_line(split_log_line(signal.message)[1], signal.time_s, signal.machine)
    if found is None:
        return signal
    pid = found.pid if signal.pid is None else signal.pid
    return replace(signal, kind=found.kind, device=signal.device or found.device, pid=pid, data={**found.data, **signal.data})


def event_of(signal: Signal) -> str | None:
    """The row of a signal that `read_signal` read; None for a kernel line of no interest, and for one that no row knows.

    Of an Xid the code decides (XidRule.event_of), of an out-of-memory kill whose memory grew (oom.py): here they are "xid" and "oom".
    """
    if signal.kind == "kernel":
        what, sign = signal.data.get("what"), signal.data.get("sign")
        if what == "sxid":
            return "sxid.fatal" if signal.data.get("fatal") else "sxid.nonfatal"
        names = [f"{what}.{sign}", str(what)] if sign else [str(what)]
        return next((name for name in names if name in load_signal_rules()), None)
    if signal.kind in ("link", "scrape"):
        return f"{signal.kind}.{signal.data.get('state')}"
    return signal.kind
