"""Scores in the stream: whole, seldom, of the caller's jobs, and never out of silence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.model.clock import FakeClock
from minder.record.api.incidents import Event
from minder.record.client.stream import parse_stream
from serve import live_scores
from serve.live_scores import ScoreFeed
from serve.state import Service

As = Callable[..., dict[str, str]]


class Controller:
    """Writes a job's status.json, as a controller does."""

    def __init__(self, service: Service, folder: Path, job: str, clock: FakeClock) -> None:
        self.path, self.job, self._clock = folder / f"{job}.json", job, clock
        service.settings.status_files[job] = self.path

    def write(self, age_s: float = 0.0, phase: str = "running", **scores: float | None) -> None:
        rows = [{"name": name, "role": "training", "score": score} for name, score in scores.items()]
        self.path.write_text(json.dumps({"job": self.job, "now_s": self._clock.now_s() - age_s, "phase": phase, "machines": rows}))


@pytest.fixture
def controller(service: Service, tmp_path: Path, clock: FakeClock) -> Controller:
    return Controller(service, tmp_path, "llm", clock)


def events(feed: ScoreFeed, since_id: int = 7) -> list[Event]:
    feed._next_s = 0.0  # the five seconds are over
    return list(parse_stream(line for piece in feed.pieces(since_id) for line in piece.split("\n")))


def test_each_event_is_whole_and_comes_once_per_change(service: Service, controller: Controller) -> None:
    feed = ScoreFeed(service, lambda job: True, None)
    controller.write(m1=0.12345, m2=None)
    (first,) = events(feed)
    assert (first.id, first.kind, first.job) == (7, "scores", "llm")
    assert first.data == {"state": "fresh", "scores": {"m1": 0.123, "m2": None}}
    assert events(feed) == []
    controller.write(m1=1.5, m2=0.1)
    (second,) = events(feed, 9)
    assert second.id == 9 and second.data["scores"] == {"m1": 1.5, "m2": 0.1} and "1.5 of the threshold" in second.what


def test_between_two_looks_nothing_is_read(service: Service, controller: Controller) -> None:
    feed = ScoreFeed(service, lambda job: True, None)
    controller.write(m1=0.1)
    assert len(list(feed.pieces(1))) == 1
    controller.write(m1=0.9)
    assert list(feed.pieces(1)) == [] and 0.0 < feed.wait_s() <= live_scores._EVERY_S


@pytest.mark.parametrize(
    ("written", "state"),
    [
        ({"age_s": 60.0, "m1": 0.1}, "silent"),
        ({"age_s": -60.0, "m1": 0.1}, "silent"),
        ({"age_s": 60.0, "phase": "finished", "m1": 0.1}, "over"),
        (None, "no data"),
    ],
)
def test_what_is_not_fresh_has_no_scores(service: Service, controller: Controller, written: dict[str, Any] | None, state: str) -> None:
    if written is not None:
        controller.write(**written)
    (event,) = events(ScoreFeed(service, lambda job: True, "llm"))
    assert event.data == {"state": state, "scores": {}}


def test_another_job_s_status_is_no_data_and_other_jobs_are_not_shown(
    service: Service, controller: Controller, tmp_path: Path, clock: FakeClock
) -> None:
    controller.write(m1=0.1)
    other = Controller(service, tmp_path, "vision", clock)
    other.path.write_text(controller.path.read_text())
    assert [event.data["state"] for event in events(ScoreFeed(service, lambda job: True, "vision"))] == ["no data"]
    assert [event.job for event in events(ScoreFeed(service, lambda job: job == "llm", None))] == ["llm"]
    assert events(ScoreFeed(service, lambda job: job == "llm", "vision")) == []


def test_scores_are_no_kind_of_the_ledger(http: httpx.Client, as_: As) -> None:
    assert http.get("/v1/events?kind=scores", headers=as_()).status_code == 422
    assert http.get("/v1/events/stream?kind=scores&kind=gossip", headers=as_()).status_code == 422
