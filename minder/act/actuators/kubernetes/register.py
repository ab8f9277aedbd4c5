"""The register of what minder holds in a cluster: one ConfigMap, written before a node is, so that all controllers count together.

It outlives the node's own object: a machine that registers anew, under whatever name, is known by its hardware. Every change is refused
by the API server if another controller changed the register since it was read, and made again on what is there then.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

from minder.act.actuators.kubernetes.calls import Calls, Json
from minder.model.errors import ActuatorError, EngineRefusalError, EngineUnavailableError

__all__ = ["Entry", "Register"]

_NAME = "minder-held"
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One machine that is kept out. node_uid: of the object that was marked; hardware: "" if it is not known;
    restarting: the pods that a restart of the job without this machine has to replace, by their uids."""

    node: str
    operation: str
    node_uid: str
    hardware: str
    owner: str
    why: str
    restarting: tuple[str, ...] = ()


class Register:
    """home: the namespace of the ConfigMap. confirm: called last before every write; raises if another controller leads."""

    def __init__(self, calls: Calls, home: str, confirm: Callable[[], None], sleep: Callable[[float], None] = time.sleep) -> None:
        self._calls = calls
        self._home = f"/api/v1/namespaces/{home}/configmaps"
        self._confirm = confirm
        self._sleep = sleep

    def entries(self) -> dict[str, Entry]:
        """By node. Raises EngineUnavailableError where the register cannot be read."""
        return self._read()[0]

    def reserve(self, entry: Entry, most: int) -> str:
        """Room for one more, and it is written down. Returns why not, else "". An entry of the same operation changes nothing."""

        def change(entries: dict[str, Entry]) -> str:
            mine = entries.get(entry.node)
            if mine is not None and mine.operation == entry.operation:
                return ""
            others = sorted(name for name in entries if name != entry.node)
            if len(others) >= most:
                return f"minder holds {', '.join(others[:5])} already, and engine.max_held is {most}"
            entries[entry.node] = entry
            return ""

        return self._change(change)

    def drop(self, node: str) -> None:
        def change(entries: dict[str, Entry]) -> str:
            entries.pop(node, None)
            return ""

        self._change(change)

    def note_restart(self, node: str, uids: tuple[str, ...]) -> None:
        """Which pods a restart without this machine replaces; of a machine that is not in the register nothing is noted."""

        def change(entries: dict[str, Entry]) -> str:
            if node in entries:
                entries[node] = replace(entries[node], restarting=uids)
            return ""

        self._change(change)

    def _change(self, change: Callable[[dict[str, Entry]], str]) -> str:
        for attempt in range(_TRIES):
            before, version = self._read()
            entries = dict(before)
            refused = change(entries)
            if refused or entries == before:
                return refused
            try:
                self._write(before, entries, version)
                return ""
            except EngineRefusalError as error:
                if error.status != 409:
                    raise
            self._sleep(0.01 * (attempt + 1))
        raise EngineUnavailableError(f"{self._home}/{_NAME} changes all the time: {_TRIES} tries to write it")

    def _read(self) -> tuple[dict[str, Entry], str | None]:
        try:
            found = self._calls.call("GET", f"{self._home}/{_NAME}")
        except EngineRefusalError as error:
            if error.status == 404:
                return {}, None
            raise
        try:
            data: Mapping[str, str] = found.get("data") or {}
            entries = {node: _entry(text) for node, text in data.items()}
            return entries, str(found["metadata"]["resourceVersion"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ActuatorError(f"minder's register {self._home}/{_NAME} cannot be read: {error}") from error

    def _write(self, before: Mapping[str, Entry], entries: Mapping[str, Entry], version: str | None) -> None:
        data: Json = {name: json.dumps(asdict(entry), sort_keys=True) for name, entry in entries.items()}
        self._confirm()
        if version is None:
            self._calls.call("POST", self._home, {"metadata": {"name": _NAME}, "data": data}, {"fieldManager": "minder"})
            return
        gone = {name: None for name in before if name not in entries}
        body = {"metadata": {"resourceVersion": version}, "data": {**data, **gone}}
        self._calls.call("PATCH", f"{self._home}/{_NAME}", body, {"fieldManager": "minder"})


def _entry(text: str) -> Entry:
    values = json.loads(text)
    return Entry(**{**values, "restarting": tuple(values.get("restarting", ()))})
