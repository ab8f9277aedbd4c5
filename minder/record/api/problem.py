"""An error as the service answers it (RFC 9457, application/problem+json)."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from minder.record.api.fields import Answer

__all__ = ["MEDIA_TYPE", "Problem"]

MEDIA_TYPE = "application/problem+json"


class Problem(Answer):
    """A refusal (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "about:blank",
                    "title": "Not Found",
                    "status": 404,
                    "detail": 'no job "llm-70b" in the ledger: GET /v1/jobs lists all',
                }
            ]
        }
    )

    type: str = Field(default="about:blank", description="Always about:blank: `status` and `detail` say it all.")
    title: str = Field(description="Name of the status.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="One line: what is wrong, where, and how to mend it.")
