"""A detector that works elsewhere, behind the contract of every detector (detectors/contract.py).

What it needs to go on stays here: the state that its host gave last, and the windows since. So a host may be lost at any time.
"""

from __future__ import annotations

import json
import pickle
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from minder.diagnose.scoring.host import Order, Past, Start, read_scores, versions
from minder.model.errors import MinderError, ScoringLostError, WireError
from minder.model.evidence import Scores
from minder.model.telemetry import Window
from minder.record.registry.folder import Model

__all__ = ["Link", "Patience", "RemoteDetector"]

_KEEP_EVERY = 60  # windows between two saved states: so many are scored again at most
_AGAIN_S = 0.2
_GLANCE_S = 0.05  # a tick waits no longer for who did not answer the last one


class Link(Protocol):
    """The way to the hosts. The future holds the host's answer, or ScoringLostError."""

    def send(self, job: str, payload: bytes) -> Future[bytes]: ...


@dataclass(frozen=True, slots=True)
class Patience:
    """seconds to wait for an answer; error: what is raised then. A live job goes on without a score, a replay cannot."""

    seconds: float = 1.0
    error: type[MinderError] = ScoringLostError


class RemoteDetector:
    """Detector. score raises Patience.error if there is no answer in time; called again with the same window, it waits on.

    trouble: one line, why there was no answer; "" while there is one. restores: how often a host was given the past again.
    """

    def __init__(self, link: Link, job: str, model: Model, stages: Mapping[str, object], patience: Patience) -> None:
        self._link, self._job, self._model, self._stages, self._patience = link, job, model, stages, patience
        self._asked: tuple[Window | None, Future[bytes]] | None = None
        self.trouble = ""
        self.restores = 0
        self.place: tuple[str, int] | None = None  # the host's node and process
        self._begin(None)

    def score(self, window: Window) -> list[Scores]:
        answer = self._ask(window)
        try:
            scores = [read_scores(item, window) for item in answer["scores"]]
        except (WireError, KeyError, TypeError, ValueError) as error:
            self._whole = True
            raise self._lost(f"an answer that is no score ({error})") from error
        self._number += 1
        self._past.append((window, None))
        return scores

    def learn(self, window: Window, anomalous: frozenset[str]) -> None:
        if self._past and self._past[-1][0] is window:
            self._past[-1] = (window, anomalous)

    def state(self) -> dict[str, Any]:
        self._ask(None)
        found: dict[str, Any] = json.loads(self._state or "{}")
        return found

    def load(self, state: Mapping[str, Any]) -> None:
        self._begin(json.dumps(state))

    def _begin(self, state: str | None) -> None:
        self._life, self._number, self._state = uuid.uuid4().hex, 0, state
        self._past: list[Past] = []
        self._whole, self._asked = True, None

    def _order(self, window: Window | None) -> Order:
        keep = window is None or len(self._past) >= _KEEP_EVERY
        if self._whole:
            start = Start(self._model, dict(self._stages), self._state, tuple(self._past))
            return Order(self._life, self._number, window, None, keep, start)
        return Order(self._life, self._number, window, self._past[-1][1] if self._past else None, keep)

    def _ask(self, window: Window | None) -> dict[str, Any]:
        """The host's answer to this window. Sent once; sent again, with all of the past, to a host that lost its own."""
        if self._asked is not None and self._asked[0] is not window:
            self._asked, self._whole = None, True  # no row waits for that answer: the host may be ahead of us
        deadline_s = time.monotonic() + (min(_GLANCE_S, self._patience.seconds) if self.trouble else self._patience.seconds)
        while True:
            if self._asked is None:
                self.restores += self._whole and self._number > 0
                self._asked = window, self._link.send(self._job, pickle.dumps(self._order(window)))
            try:
                answer = json.loads(self._asked[1].result(max(0.0, deadline_s - time.monotonic())))
            except TimeoutError:
                raise self._lost(self.trouble or f"no answer for {self._patience.seconds:g} s") from None
            except ScoringLostError as error:
                self._asked, self._whole = None, True
                if time.monotonic() + _AGAIN_S > deadline_s:
                    raise self._lost(str(error)) from error
                time.sleep(_AGAIN_S)
                continue
            self._asked = None
            if not answer.get("lost"):
                return self._accept(answer)
            self._whole = True

    def _accept(self, answer: dict[str, Any]) -> dict[str, Any]:
        place = answer["place"]
        theirs = place["versions"]
        odd = [f"{name} {theirs.get(name)} instead of {own}" for name, own in versions().items() if theirs.get(name) != own]
        if odd:
            self._whole = True
            raise self._lost(f"{place['node']} has {odd[0]}: install the same there as here, or its scores may differ")
        if answer["state"] is not None:
            self._state, self._past = answer["state"], []
        self._whole, self.trouble, self.place = False, "", (place["node"], place["pid"])
        return answer

    def _lost(self, why: str) -> MinderError:
        self.trouble = why
        return self._patience.error(f"the telemetry of {self._job} is not scored: {why}")
