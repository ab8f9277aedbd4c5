"""What scores one job elsewhere: a detector, and how far it has come. It lives in an actor; Ray is not imported here.

A host that was killed comes back empty. It says so, and is given the job's saved state and the windows since then (`Start`): what it
says from there on is what it would have said.
"""

from __future__ import annotations

import base64
import functools
import importlib.metadata
import json
import os
import pickle
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minder.diagnose.detectors.contract import Detector
from minder.diagnose.load_detector import detector_maker
from minder.model.evidence import Scores
from minder.model.telemetry import Window
from minder.record.registry.folder import Model
from minder.wire.codec import from_json, to_json

__all__ = ["DetectorHost", "Order", "Past", "Start", "read_scores", "versions"]

Past = tuple[Window, frozenset[str] | None]  # a scored window, and who was called anomalous in it; None: it was not learned


@dataclass(frozen=True, slots=True)
class Start:
    """Everything that a host must know to go on. state: a detector's, as JSON; past: what it has seen since."""

    model: Model
    stages: Mapping[str, object]
    state: str | None
    past: tuple[Past, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """The next window of a job. life: of one detector, from its first window on; number: how many windows came before.

    anomalous: what is to be learned of the window before, None: nothing. keep: answer with the state as it is before this window.
    window None: nothing is scored. start: for a host that is not there yet; the window before is in its past then.
    """

    life: str
    number: int
    window: Window | None
    anomalous: frozenset[str] | None = None
    keep: bool = False
    start: Start | None = None


class DetectorHost:
    """One job's detector. Takes an Order as pickle from the controller, answers in JSON: the controller unpickles nothing."""

    def __init__(self) -> None:
        self._life, self._number = "", -1
        self._detector: Detector | None = None
        self._last: Window | None = None

    def advance(self, payload: bytes) -> bytes:
        """{scores, state, place}, or {lost: true} if this host is not where the order goes on."""
        order: Order = pickle.loads(payload)
        if order.start is not None:
            self._begin(order, order.start)
        elif (order.life, order.number) != (self._life, self._number):
            return json.dumps({"lost": True}).encode()
        assert self._detector is not None
        if order.start is None and order.anomalous is not None and self._last is not None:
            self._detector.learn(self._last, order.anomalous)
        self._last = None
        state = json.dumps(self._detector.state()) if order.keep else None
        scores: list[Any] = []
        if order.window is not None:
            scores = [_plain(found, order.window) for found in self._detector.score(order.window)]
            self._last, self._number = order.window, self._number + 1
        return json.dumps({"scores": scores, "state": state, "place": _place()}, default=_number).encode()

    def _begin(self, order: Order, start: Start) -> None:
        self._life = ""  # until all of the past has been gone through
        detector = detector_maker(start.model)(start.stages)
        if start.state is not None:
            detector.load(json.loads(start.state))
        for window, anomalous in start.past:
            detector.score(window)
            if anomalous is not None:
                detector.learn(window, anomalous)
        self._detector, self._last, self._life, self._number = detector, None, order.life, order.number


@functools.cache
def versions() -> dict[str, str]:
    """What must be the same on both sides for the same numbers."""
    minder = importlib.metadata.version("minder-cluster")
    return {"minder": minder, "numpy": np.__version__, "python": platform.python_version(), "processor": platform.machine()}


def read_scores(found: Any, window: Window) -> Scores:
    """Of an answer to this window. Raises WireError, KeyError, TypeError, ValueError."""
    machines = window.machines if found["machines"] is None else tuple(map(str, found["machines"]))
    score_M = np.frombuffer(base64.b64decode(found["score_M"], validate=True), dtype=np.dtype(found["dtype"])).copy()
    if len(score_M) != len(machines):
        raise ValueError(f"{len(score_M)} scores for {len(machines)} machines")
    return replace(from_json(Scores, {**found, "machines": []}), machines=machines, score_M=score_M)


def _place() -> dict[str, Any]:
    return {"node": socket.gethostname(), "pid": os.getpid(), "versions": versions()}


def _plain(scores: Scores, window: Window) -> dict[str, Any]:
    """All of it as JSON; of a thousand machines the names, if they are the window's, and numbers as they lie in memory."""
    machines = None if scores.machines == window.machines else scores.machines
    numbers = base64.b64encode(scores.score_M.tobytes()).decode()
    return {
        **to_json(replace(scores, machines=(), score_M=scores.score_M[:0])),
        "machines": machines,
        "score_M": numbers,
        "dtype": scores.score_M.dtype.name,
    }


def _number(value: Any) -> Any:
    """A number of numpy, as the detector put it into its evidence."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no part of a score")
