"""Several dumps in one text: which threads, and which JSON documents, belong to the newest.

`faulthandler` on a timer, py-spy in a loop and a gdb that is run again append to one file, so the order in the text is the order in
time. A new dump begins where a thread appears that the current one holds already, whatever stands between: banners, times, log lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

__all__ = ["holds_several", "json_documents", "newest_run"]

_T = TypeVar("_T")
_BEGIN = re.compile(r'(?:^[ \t]*|(?<=[\]}]))(?=\[\s*\{|\{\s*")', re.MULTILINE)


def newest_run(items: Sequence[_T], name: Callable[[_T], object], ends: Callable[[_T], bool] = lambda _: False) -> list[_T]:
    """The last items in which no name appears twice. None is no name. ends: a dump is complete with this item.

    >>> newest_run(["a1", "b1", "a2", "b2"], name=lambda item: item[0])
    ['a2', 'b2']
    """
    begin, seen, is_complete = 0, set[object](), False
    for index, item in enumerate(items):
        own = name(item)
        if is_complete or (own is not None and own in seen):
            begin, seen = index, set()
        seen.add(own)
        is_complete = ends(item)
    return list(items[begin:])


def holds_several(text: str) -> bool:
    """Whether a text that begins like a JSON document may hold more than that one."""
    return text.find("\n[", 1) >= 0 or text.find("\n{", 1) >= 0 or text.find("][") >= 0


def json_documents(text: str) -> Iterator[Any]:
    """JSON documents in a text, one after the other; what stands between them, and what is cut off, is passed over."""
    decoder, at = json.JSONDecoder(), 0
    while (found := _BEGIN.search(text, at)) is not None:
        try:
            document, at = decoder.raw_decode(text, found.end())
            yield document
        except (ValueError, RecursionError):
            at = text.find("\n", found.end()) + 1 or len(text)
