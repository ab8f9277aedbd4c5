"""Pauses: actions stop for a while, alarms go on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from minder.record.api.fields import Answer, MachineName, Request, Text

__all__ = ["EndPauseRequest", "Pause", "PauseRequest"]


class _Scoped(Request):
    """scope "all" has no target; the others name one."""

    scope: Literal["all", "job", "rack"] = Field(description="What is meant: everything, one job or one rack.")
    target: MachineName | None = Field(default=None, description="Name of the job or rack; null for `all`.")
    reason: Text = Field(description="Why; the next person reads it.")

    @model_validator(mode="after")
    def _names_its_target(self) -> _Scoped:
        if (self.scope == "all") != (self.target is None):
            raise ValueError('scope "all" takes no target, "job" and "rack" need one')
        return self


class PauseRequest(_Scoped):
    """Stop actions for a while; alarms go on."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"scope": "job", "target": "llm-70b", "seconds": 7200, "reason": "switch firmware"}]}
    )

    seconds: Annotated[float, Field(strict=True, gt=0, le=30 * 86_400, allow_inf_nan=False)] = Field(
        description="How long, in seconds, at most 30 days; it ends by itself.",
    )


class EndPauseRequest(_Scoped):
    """Ends the pause of this scope; "all" ends every pause."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"scope": "job", "target": "llm-70b", "reason": "done early"}]})


class Pause(Answer):
    """A pause that holds now."""

    scope: Literal["all", "job", "rack"] = Field(description="What is paused: everything, one job or one rack.")
    target: str | None = Field(description="Name of the job or rack; null for `all`, or where the token does not cover it.")
    until: str = Field(description="When it ends by itself, ISO 8601 in UTC.")
    reason: str = Field(description="Why it was paused.")
