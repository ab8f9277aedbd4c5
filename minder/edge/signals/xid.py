"""What to think of an Xid: severity, action and eviction by code, each with its source (xid_rules.toml).

Published lists disagree about the same code, so a site may overrule any of them with a file in the same format.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from minder.edge.signals.rules import load_signal_rules
from minder.model.errors import ConfigError

__all__ = ["XidRule", "find_xid_rule", "load_xid_rules"]

Severity = Literal["info", "warning", "fatal", "unknown"]
Action = Literal["none", "restart_app", "reset_gpu", "restart_machine", "check_machine", "update_software", "contact_support", "decode"]


@dataclass(frozen=True, slots=True)
class XidRule:
    """evict: whether one such line alone justifies taking the machine out of the job. event: its row of signal_rules.toml.
    texts: (pattern, event), for lines that say more than their code; the first that is found decides."""

    code: int
    source: str
    edition: str
    severity: Severity
    action: Action
    evict: bool
    event: str = "xid.none"
    texts: tuple[tuple[re.Pattern[str], str], ...] = ()

    def event_of(self, message: str) -> str:
        """What a line with this code is, as a row of signal_rules.toml.

        >>> find_xid_rule(149).event_of("NVRM: Xid (PCI:0000:df:00): 149, NETIR_LINK_EVT Fatal XC0")
        'xid.link'
        """
        return next((event for pattern, event in self.texts if pattern.search(message)), self.event)


def find_xid_rule(code: int, rules: Mapping[int, XidRule] | None = None) -> XidRule:
    """The rule for a code; a code that no list has is unknown, and no machine is evicted for it.

    >>> find_xid_rule(79).action
    'restart_machine'
    """
    found = (rules if rules is not None else load_xid_rules()).get(code)
    return found or XidRule(code, "minder", "no list has this code", "unknown", "contact_support", False)


@functools.cache
def load_xid_rules(site: Path | None = None) -> Mapping[int, XidRule]:
    """The rules that minder ships, overruled code by code by the site's file. Raises ConfigError."""
    rules = _read(Path(__file__).with_name("xid_rules.toml"))
    return rules | _read(site) if site is not None else rules


def _read(path: Path) -> dict[int, XidRule]:
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"Xid rules {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"Xid rules {path}: {error}") from error
    rules: dict[int, XidRule] = {}
    for entry in table.get("rule", ()):
        rules |= _parse(entry, str(table.get("source", "site")), str(table.get("edition", "")), path)
    for code, texts in _texts(table.get("text", ()), path).items():
        rule = rules.get(code) or XidRule(code, str(table.get("source", "site")), "", "unknown", "decode", False)
        rules[code] = replace(rule, texts=texts)
    return rules


def _texts(entries: Iterable[Mapping[str, Any]], path: Path) -> dict[int, tuple[tuple[re.Pattern[str], str], ...]]:
    found: defaultdict[int, tuple[tuple[re.Pattern[str], str], ...]] = defaultdict(tuple)
    for entry in entries:
        event = _event(entry.get("event"), path)
        try:
            pattern = re.compile(entry["pattern"])
            codes = [int(code) for code in entry["codes"]]
        except (KeyError, TypeError, ValueError, re.error) as error:
            raise ConfigError(f"Xid rules {path}: a [[text]] needs codes, a pattern and an event: {error}") from error
        for code in codes:
            found[code] += ((pattern, event),)
    return found


def _event(event: Any, path: Path) -> str:
    if event not in load_signal_rules():
        raise ConfigError(f"Xid rules {path}: event {event!r} is no row of signal_rules.toml")
    return str(event)


def _parse(entry: dict[str, Any], source: str, edition: str, path: Path) -> dict[int, XidRule]:
    unknown = entry.keys() - {"codes", "severity", "action", "evict", "event", "source", "edition"}
    if unknown:
        raise ConfigError(f"Xid rules {path}: unknown key {sorted(unknown)[0]!r} in a [[rule]]")
    codes, evict = entry.get("codes"), entry.get("evict", False)
    severity: Any = entry.get("severity")
    action: Any = entry.get("action")
    if not isinstance(codes, list) or not all(isinstance(code, int) for code in codes):
        raise ConfigError(f"Xid rules {path}: codes is {codes!r}, expected a list of numbers")
    if severity not in get_args(Severity):
        raise ConfigError(f"Xid rules {path}: severity of {codes} is {severity!r}, expected one of {', '.join(get_args(Severity))}")
    if action not in get_args(Action):
        raise ConfigError(f"Xid rules {path}: action of {codes} is {action!r}, expected one of {', '.join(get_args(Action))}")
    if not isinstance(evict, bool):
        raise ConfigError(f"Xid rules {path}: evict of {codes} is {evict!r}, expected true or false")
    source, edition = str(entry.get("source", source)), str(entry.get("edition", edition))
    event = _event(entry.get("event", "xid.evict" if evict else "xid.fatal" if severity == "fatal" else "xid.none"), path)
    return {code: XidRule(code, source, edition, severity, action, evict, event) for code in codes}
