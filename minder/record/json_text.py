"""JSON of which there is much: the ledger's payloads, what a controller writes of 25,000 machines."""

from __future__ import annotations

import json

from pydantic_core import from_json

__all__ = ["read_json"]


def read_json(text: str | bytes) -> object:
    """As json.loads, in less than half of its time, and with each short text once in memory. Raises ValueError.

    >>> read_json('{"a": [1, NaN]}')
    {'a': [1, nan]}
    """
    try:
        found: object = from_json(text)
    except ValueError:  # half a surrogate pair, which json.dumps writes for a text that no encoding has
        found = json.loads(text)
    return found
