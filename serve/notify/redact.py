"""What must not leave the house: passwords and keys that a log line may hold, and what the site says besides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

__all__ = ["BLOT", "redact"]

BLOT = "[redacted]"
_KNOWN = (
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/@]+@"), rf"\1{BLOT}@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}"), rf"\1 {BLOT}"),
    (
        re.compile(r"(?i)\b([a-z0-9_.-]*(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|credential)[a-z0-9_.-]*[\"']?\s*[=:]\s*)"
                   r"(?:\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)"),
        rf"\1{BLOT}",
    ),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), BLOT),
    (re.compile(r"\b(?:hf|ghp|gho|glpat|xox[abp]|sk|minder)[_-][A-Za-z0-9_-]{16,}"), BLOT),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL), BLOT),
)  # fmt: skip


def redact(value: Any, patterns: Sequence[str] = ()) -> Any:
    """The same value (text, or lists and mappings of it) with every match blotted out.

    >>> redact("mount -o username=a,password=b failed")
    'mount -o username=a,password=[redacted] failed'
    """
    if isinstance(value, str):
        for known, instead in _KNOWN:
            value = known.sub(instead, value)
        for pattern in patterns:
            value = re.sub(pattern, BLOT, value)
        return value
    if isinstance(value, dict):
        return {key: redact(item, patterns) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(redact(item, patterns) for item in value)
    return value
