"""What a controller shows of its lease: whether it leads, since when nothing was heard of the leader, and that it took over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.lease import Leadership, LeaseGauges, wait_to_lead
from minder.act.controller.reporting.exporter import exposition
from minder.ingest.sources.exposition import parse_exposition
from minder.model.errors import ConfigError
from minder.record.store.leases import LeaseStore


def read(leadership: Leadership) -> dict[str, float]:
    found = parse_exposition(exposition((LeaseGauges(leadership, "run"),), {"training_job": "llm"}).decode())
    assert all(labels == {"training_job": "llm", "mode": "run"} for _, labels, _ in found)
    return {name.removeprefix("minder_controller_"): value for name, _, value in found}


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Callable[..., Leadership]]:
    """Places in line for one job, on one new ledger."""
    made: list[Leadership] = []

    def make(**pace: float) -> Leadership:
        made.append(Leadership(str(tmp_path / "ledger.db"), "llm", **pace))
        return made[-1]

    yield make
    for each in made:
        each.close()


class Page:
    def __init__(self, shown: list[str]) -> None:
        self._shown = shown
        shown.append("open")

    def close(self) -> None:
        self._shown.append("closed")


def test_the_leader_and_who_waits_show_the_same_token_and_only_one_leads(line: Callable[..., Leadership]) -> None:
    first, second = line(beat_s=0.05), line()
    assert first.lead(threading.Event(), print) is not None
    stopping, shown, said = threading.Event(), list[str](), list[str]()
    waits = threading.Thread(target=wait_to_lead, args=(second, stopping, said.append, lambda: Page(shown)))
    waits.start()
    while not shown:
        time.sleep(0.01)
    one, two = read(first), read(second)
    assert (one["leader"], two["leader"]) == (1.0, 0.0) and one["lease_token"] == two["lease_token"] == 1.0
    assert 0.0 <= one["lease_age_seconds"] < 60.0 and 0.0 <= two["lease_age_seconds"] < 60.0
    stopping.set()
    waits.join()
    assert shown == ["open", "closed"] and "is led by process" in said[0]


def test_a_takeover_counts_only_where_the_lease_was_not_given_back(line: Callable[..., Leadership], tmp_path: Path) -> None:
    dead = LeaseStore(tmp_path / "ledger.db")
    dead.take("llm", "process 1 on m9", None)
    second, third = line(patience_s=0.1), line()
    assert second.lead(threading.Event(), print) is not None
    found = read(second)
    assert (found["leader"], found["lease_token"], found["takeovers_total"]) == (1.0, 2.0, 1.0)
    second.close()
    assert third.lead(threading.Event(), print) is not None
    found = read(third)
    assert (found["lease_token"], found["takeovers_total"]) == (3.0, 0.0)
    dead.close()


def test_a_leader_that_lost_its_lease_says_so(line: Callable[..., Leadership], tmp_path: Path) -> None:
    first, store = line(beat_s=0.01), LeaseStore(tmp_path / "ledger.db")
    first.lead(threading.Event(), print)
    while store.take("llm", "another", store.read("llm")) is None:
        pass
    assert first.lost.wait(60.0)
    assert read(first)["leader"] == 0.0
    store.close()


def test_nobody_ever_led_is_no_number(line: Callable[..., Leadership]) -> None:
    found = read(line())
    assert found == {"leader": 0.0, "takeovers_total": 0.0}


def test_an_address_that_the_leader_has_is_told_once_and_it_goes_on_waiting(line: Callable[..., Leadership]) -> None:
    first, said, stopping = line(beat_s=0.05), list[str](), threading.Event()
    first.lead(threading.Event(), print)

    def taken() -> Any:
        raise ConfigError("metrics.listen: cannot listen on 127.0.0.1:9403")

    def say(text: str) -> None:
        said.append(text)

    second = line()
    waits = threading.Thread(target=wait_to_lead, args=(second, stopping, say, taken))
    waits.start()
    while len(said) < 2:
        time.sleep(0.01)
    assert waits.is_alive() and "shows no metrics while it waits" in said[1]
    first.close()
    waits.join(60.0)
    assert second.mine is not None
