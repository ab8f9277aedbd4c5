"""What a look at the set-up found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Finding", "Status", "as_json", "is_fine"]

Status = Literal["ok", "missing", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """check: what was looked at. status: "ok"; "missing" (something does not work without it); "note" (absent or unknown, and
    minder works without it). seen: one line. mend: how, one line; empty where nothing is to be done."""

    check: str
    status: Status
    seen: str
    mend: str = ""


def is_fine(findings: Iterable[Finding]) -> bool:
    return all(finding.status != "missing" for finding in findings)


def as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [asdict(finding) for finding in findings]
