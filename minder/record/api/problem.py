"""An error as the service reports it (RFC 9457, application/problem+json)."""

from __future__ import annotations

from minder.record.api.fields import Answer

__all__ = ["MEDIA_TYPE", "Problem"]

MEDIA_TYPE = "application/problem+json"


class Problem(Answer):
    """detail: one line that says what is wrong, where, and how to mend it."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
