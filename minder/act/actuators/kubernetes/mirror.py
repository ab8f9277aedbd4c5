"""A copy of one collection, kept by the API server's own watch: the whole list once, changes afterwards, the list again where the
server has forgotten how far back we are (410)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from minder.act.actuators.kubernetes.calls import Calls, Json
from minder.model.errors import EngineRefusalError, EngineUnavailableError

__all__ = ["Mirror", "list_all"]

Record = TypeVar("Record")
_PAGE = 500
_TRIES = 3


class Mirror(Generic[Record]):
    """path: of the collection; read: an object to what is kept of it; query: selectors."""

    def __init__(self, calls: Calls, path: str, read: Callable[[Mapping[str, Any]], Record], query: Mapping[str, str]) -> None:
        self._calls = calls
        self._path = path
        self._read = read
        self._query = dict(query)
        self._records: dict[str, Record] = {}
        self._version = ""

    def records(self) -> list[Record]:
        """As of now. Raises EngineUnavailableError; what was known before is then not given out."""
        if self._version and not self._follow():
            self._version = ""
        if not self._version:
            items, self._version = list_all(self._calls, self._path, self._query)
            read = [self._read(item) for item in items]  # what is no node or pod is reported here
            self._records = {_key(item): record for item, record in zip(items, read, strict=True)}
        return list(self._records.values())

    def _follow(self) -> bool:
        """Take the changes since; False where the server does not have them any more."""
        query = {**self._query, "resourceVersion": self._version, "allowWatchBookmarks": "true"}
        try:
            events = self._calls.watch(self._path, query)
        except EngineRefusalError as error:
            if error.status == 410:
                return False
            raise
        for event in events:
            if event.get("type") == "ERROR":
                if event.get("object", {}).get("code") == 410:
                    return False
                raise EngineUnavailableError(f"Kubernetes' watch of {self._path} failed: {str(event.get('object'))[:200]}")
            self._apply(event)
        return True

    def _apply(self, event: Json) -> None:
        try:
            kind, item = event["type"], event["object"]
            self._version = str(item["metadata"]["resourceVersion"])
            if kind == "DELETED":
                self._records.pop(_key(item), None)
            elif kind in ("ADDED", "MODIFIED"):
                self._records[_key(item)] = self._read(item)
        except (KeyError, TypeError) as error:
            self._version = ""
            raise EngineUnavailableError(f"Kubernetes' watch of {self._path} cannot be read: {str(event)[:120]}") from error


def list_all(calls: Calls, path: str, query: Mapping[str, str]) -> tuple[list[Json], str]:
    """Everything in pages, and the collection's version. A list whose pages expired half way is begun again."""
    for _ in range(_TRIES):
        try:
            items, version = [], ""
            for page in _pages(calls, path, query):
                items += page["items"]
                version = str(page["metadata"]["resourceVersion"])
            return items, version
        except EngineRefusalError as error:
            if error.status != 410:
                raise
        except (KeyError, TypeError) as error:
            raise EngineUnavailableError(f"Kubernetes' list of {path} cannot be read ({error!r})") from error
    raise EngineUnavailableError(f"Kubernetes' list of {path} expired {_TRIES} times before it was read")


def _pages(calls: Calls, path: str, query: Mapping[str, str]) -> Iterator[Json]:
    more = ""
    while True:
        page = calls.call("GET", path, None, {**query, "limit": _PAGE, **({"continue": more} if more else {})})
        yield page
        more = page["metadata"].get("continue") or ""
        if not more:
            return


def _key(item: Mapping[str, Any]) -> str:
    return f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
