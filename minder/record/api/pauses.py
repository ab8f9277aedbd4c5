"""Pauses: actions stop for a while, alarms go on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from minder.record.api.fields import Answer, MachineName, Request, Text

__all__ = ["EndPauseRequest", "Pause", "PauseRequest"]


class _Scoped(Request):
    """scope "all" has no target; the others name one."""

    scope: Literal["all", "job", "rack"]
    target: MachineName | None = None
    reason: Text

    @model_validator(mode="after")
    def _names_its_target(self) -> _Scoped:
        if (self.scope == "all") != (self.target is None):
            raise ValueError('scope "all" takes no target, "job" and "rack" need one')
        return self


class PauseRequest(_Scoped):
    """seconds: how long; it ends by itself."""

    seconds: Annotated[float, Field(strict=True, gt=0, le=30 * 86_400, allow_inf_nan=False)]


class EndPauseRequest(_Scoped):
    """Ends the pause of this scope; "all" ends every pause."""


class Pause(Answer):
    """A pause that holds now."""

    scope: Literal["all", "job", "rack"]
    target: str | None
    until: str
    reason: str
