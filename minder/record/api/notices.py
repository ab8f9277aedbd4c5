"""What the service reports: one notice per verdict, question, action and end of an incident, and the signature of its webhooks."""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal

from minder.model.errors import BadInputError
from minder.record.api.fields import Answer

__all__ = ["DELIVERY_HEADER", "SIGNATURE_HEADER", "Notice", "check_signature", "sign"]

SIGNATURE_HEADER = "Minder-Signature"
DELIVERY_HEADER = "Minder-Notice-Id"
_TOLERANCE_S = 300.0


class Notice(Answer):
    """Something to tell. id: the same however often it is sent: a receiver forgets what it has seen. time: of the event, ISO 8601.

    tier, cause, confidence, machines: of the incident's last verdict. undo: commands that take it back.
    """

    id: str
    kind: Literal["verdict", "question", "action", "closed"]
    time: str
    job: str | None
    incident: str
    state: str
    tier: str | None
    cause: str | None
    confidence: float | None
    machines: tuple[str, ...]
    title: str
    what: str
    evidence: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    link: str | None = None


def sign(secret: str, body: bytes, now_s: float) -> str:
    """The value of SIGNATURE_HEADER: "t=<unix seconds>,v1=<HMAC-SHA256 of "t.body" in hex>"."""
    stamp = str(int(now_s))
    return f"t={stamp},v1={_digest(secret, stamp, body)}"


def check_signature(secret: str, header: str | None, body: bytes, now_s: float, tolerance_s: float = _TOLERANCE_S) -> None:
    """For receivers: raises BadInputError unless the body was signed with the secret, and lately.

    >>> check_signature("s", sign("s", b"{}", 100.0), b"{}", 130.0)
    """
    parts = dict(part.partition("=")[::2] for part in (header or "").split(","))
    stamp, given = parts.get("t", ""), parts.get("v1", "")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16 and given.isascii()):
        raise BadInputError(f"{SIGNATURE_HEADER} is missing or is none of ours: refuse the request")
    if not hmac.compare_digest(_digest(secret, stamp, body), given):
        raise BadInputError(f"{SIGNATURE_HEADER} does not fit the body: another secret, or the body was changed on the way")
    if abs(now_s - int(stamp)) > tolerance_s:
        raise BadInputError(f"{SIGNATURE_HEADER} is {abs(now_s - int(stamp)):.0f} s off: an old request, or a clock that is wrong")


def _digest(secret: str, stamp: str, body: bytes) -> str:
    return hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
