"""A client of the service: `with Client(url, token) as client: client.incidents(state="open")`. Needs httpx and pydantic, no server."""

from __future__ import annotations

from minder.record.client.client import Client
from minder.record.client.stream import follow_events

__all__ = ["Client", "follow_events"]
