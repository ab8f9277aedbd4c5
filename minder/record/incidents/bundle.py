"""What a vendor gets: the accused machines' evidence as one archive, with nothing of the job, of other machines, or of people in it.

What is not known to be harmless is left out, and the archive says what was.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from minder.model.clock import format_time
from minder.model.history import LedgerEvent
from minder.model.telemetry import TelemetryExcerpt
from minder.record.incidents import kinds
from minder.record.incidents.excerpts import TELEMETRY, is_excerpt
from minder.record.incidents.fold import fold_incident
from minder.record.incidents.places import find_places
from minder.record.incidents.record import Incident
from minder.record.incidents.report import describe_evidence

__all__ = ["vendor_bundle"]

# What a machine says of itself. Stacks, processes and logs are the job's.
_PARTS = frozenset({TELEMETRY, "kernel", "devices", "ecc", "counters", "flows", "reach", "links"})
_WHEN = (1980, 1, 1, 0, 0, 0)  # the same events give the same bytes
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [^-]+-----.*?(?:-----END [^-]+-----|\Z)", re.DOTALL), "[key]"),
    (re.compile(r"\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), "[secret]"),
    (re.compile(r"\b(?:minder|ghp|gho|glpat|sk|hf|xox[abp]|AKIA)[_-]?[A-Za-z0-9_-]{16,}"), "[secret]"),
    (re.compile(r"(?i)\b([\w-]*(?:token|passw(?:or)?d|secret|api[_-]?key|credential)[\w-]*)(\"?\s*[=:]\s*)\S+"), r"\1\2[secret]"),
    (re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE), "[address]"),
    (re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b"), "[mail]"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "[address]"),
    (re.compile(r"\b(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{0,4}\b|\b[0-9a-f:]*::[0-9a-f:]+\b", re.IGNORECASE), "[address]"),
    (re.compile(r"(?<![\w/])/(?:home|Users|root|data|mnt|scratch|work|lustre|nfs|tmp)/[^\s\"',;:)]+"), "[path]"),
)
_WORD = re.compile(r"(?<![\w.-])[\w.-]+")


def vendor_bundle(
    events: Sequence[LedgerEvent],
    registered: Sequence[LedgerEvent] = (),
    places: Mapping[str, Mapping[str, str]] | None = None,
    draw: Callable[[TelemetryExcerpt], str] | None = None,
) -> bytes:
    """A ZIP archive out of all events of one incident. registered: how its job registered, which names the machines that are none
    of the vendor's business. places: machine to what is known of it (rack, serial, ...), beyond what the job registered.
    draw: makes an SVG picture of kept telemetry.

    Raises BadInputError for no events.
    """
    known = find_places(registered)
    for machine, place in (places or {}).items():
        known.setdefault(machine, {}).update(place)
    incident = fold_incident(events)
    accused = tuple(dict.fromkeys((*incident.machines, *incident.evicted)))
    hide = _Hider(incident, accused, _machines([*events, *registered]) | set(known))
    files = {
        "machines.json": _json({name: known.get(name, {}) for name in accused}),
        "evidence.txt": "".join(f"{hide.text(line)}\n" for line in _evidence(incident, accused)),
    }
    if draw is not None:
        own = [item for item in incident.excerpts if item.machine in accused]
        files |= {f"pictures/{_plain(item.machine)}-telemetry.svg": draw(item) for item in own}
    left_out: dict[str, int] = {}
    newest = {str(event.payload.get("machine")): event.id for event in events if is_excerpt(event)}.values()
    for event_id, machine, part, data in _captured(events):
        if part == TELEMETRY and event_id not in newest:
            continue
        if machine in accused and part in _PARTS:
            files[f"captures/{_plain(machine)}-{_plain(part)}-{event_id}.json"] = _json(hide.value(data))
        else:
            left_out[part] = left_out.get(part, 0) + 1
    files["README.txt"] = _readme(incident, accused, left_out)
    return _zip(files)


def _captured(events: Sequence[LedgerEvent]) -> Iterator[tuple[int, str, str, Any]]:
    """(event, machine, part, data): what an agent answered at once is taken apart."""
    for event in events:
        if event.kind != kinds.EVIDENCE:
            continue
        machine, what, data = (event.payload.get(key) for key in ("machine", "what", "data"))
        if what == "evidence" and isinstance(data, Mapping):
            yield from (
                (event.id, str(machine), str(part), value) for part, value in data.items() if isinstance(value, (list, dict)) and value
            )
        else:
            yield event.id, str(machine), str(what or "data"), data


def _evidence(incident: Incident, accused: Sequence[str]) -> list[str]:
    own = [item for item in incident.evidence if item.machine in accused]
    return [describe_evidence(item) for item in own]


def _plain(name: object) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", str(name))[:80].lstrip(".") or "_"


class _Hider:
    """Takes names of the job and of other machines, addresses, paths and secrets out of whatever it is given."""

    def __init__(self, incident: Incident, accused: Sequence[str], machines: set[str]) -> None:
        others = sorted(machines - set(accused), key=lambda name: (-len(name), name))
        named = {name: f"peer-{index + 1}" for index, name in enumerate(name for name in others if name)}
        if incident.job:
            named[incident.job] = "the-job"
        self._named = named
        unusual = sorted((name for name in named if not _WORD.fullmatch(name)), key=len, reverse=True)
        self._unusual = re.compile("|".join(rf"(?<![\w.-]){re.escape(name)}(?![\w-])" for name in unusual)) if unusual else None

    def text(self, text: str) -> str:
        for pattern, instead in _RULES:
            text = pattern.sub(instead, text)
        if self._unusual is not None:
            text = self._unusual.sub(lambda match: self._named[match.group()], text)
        return _WORD.sub(self._instead, text)

    def _instead(self, match: re.Match[str]) -> str:
        """Of a word the longest beginning that is a name and ends at a dot or with it. One look each: 25,000 names are no pattern."""
        word = name = match.group()
        while name not in self._named and "." in name:
            name = name.rpartition(".")[0]
        return self._named.get(name, name) + word[len(name) :]

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._keyed(str(key), item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value

    def _keyed(self, key: str, item: Any) -> Any:
        secret = re.search(r"(?i)token|passw|secret|api_?key|credential|environ|cmdline|command", key)
        return "[left out]" if secret else self.value(item)


def _machines(events: Sequence[LedgerEvent]) -> set[str]:
    """Every machine that the incident's events name anywhere."""
    found: set[str] = set()

    def look(value: Any, key: str = "") -> None:
        if isinstance(value, Mapping):
            for name, item in value.items():
                look(item, str(name))
            if key == "rank_machine":
                found.update(str(item) for item in value.values())
        elif isinstance(value, (list, tuple)):
            if key in ("machines", "standbys", "replacements", "peers"):
                found.update(item for item in value if isinstance(item, str))
            for item in value:
                look(item, key)
        elif key == "machine" and isinstance(value, str):
            found.add(value)

    for event in events:
        look(event.payload)
    return found


def _readme(incident: Incident, accused: Sequence[str], left_out: Mapping[str, int]) -> str:
    verdict = incident.verdict
    lines = [
        f"Evidence about {', '.join(accused) or 'no machine'}, collected {format_time(incident.opened_s)}.",
        f"Conclusion: {verdict.cause}, confidence {verdict.confidence:.2f}." if verdict else "No conclusion is recorded.",
        "",
        "machines.json   what is known of the machines",
        "evidence.txt    what was measured, and what was expected",
        "captures/       what the machines said of themselves before anything was ended; their telemetry around the fault",
        "pictures/       that telemetry, where it was kept, against the band of the peers",
        "",
        "Left out: everything about the job and its users.",
        "Replaced: names of other machines and of the job, addresses, paths and secrets.",
        *(f"Left out: {count} captures of kind {_plain(what)}." for what, count in sorted(left_out.items())),
    ]
    return "\n".join(lines) + "\n"


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, default=str) + "\n"


def _zip(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _WHEN), files[name], zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
