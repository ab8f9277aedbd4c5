"""What keeps pages of large sites quick says the same as what it replaces."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from minder.model.history import LedgerEvent
from minder.model.topology import Parallelism
from minder.record.incidents import kinds
from minder.record.store import events as events_module
from minder.record.store.events import EventQuery, EventStore
from minder.record.store.follow import EventFollower
from minder.record.store.rows import EventRow
from serve.job_shapes import NO_LAYOUT
from serve.one_reading import OneReading
from serve.pages import job as page
from serve.pages.job import Cell
from serve.state import Service
from serve.status_files import StatusFiles


def test_a_rank_stands_where_its_coordinates_say() -> None:
    layout = Parallelism(tensor=2, pipeline=3, data=4, rank_order="dp-tp-pp")
    for axis in ("tp", "pp", "dp"):
        stride, size = layout.stride(axis)
        assert [rank // stride % size for rank in range(24)] == [layout.coordinates(rank)[axis] for rank in range(24)]


def test_a_status_is_read_again_when_it_was_written_again(tmp_path: Path) -> None:
    files, path = StatusFiles(), tmp_path / "status.json"
    assert files.read(path) is None
    for step in (1, 2):
        other = tmp_path / "new"
        other.write_text(json.dumps({"step": step}))
        other.replace(path)
        found = files.read(path)
        assert found == {"step": step} and files.read(path) is found
    path.unlink()
    assert files.read(path) is None


def test_a_shape_stays_until_the_ledger_or_the_configuration_changes(service: Service) -> None:
    first = service.shape("llm")
    assert first is not None and service.shape("llm") is first and service.shape("no such job") is None
    assert {machine: [rank for rank in ranks if first.rank_machine[rank] == machine] for machine, ranks in first.ranks.items()} == {
        machine: list(ranks) for machine, ranks in first.ranks.items()
    }
    assert set(first.titles("pp").values()) == {NO_LAYOUT}  # this service has no configuration of it
    event = {"generation": 9, "rank_machine": {"0": "other"}}
    service.events.insert(EventRow(1.0, kinds.GENERATION_STARTED, json.dumps(event), "llm"))
    second = service.shape("llm")
    assert second is not None and second is not first and second.ranks == {"other": (0,)}


def cells_of(levels: Sequence[str]) -> list[Cell]:
    return [Cell(f"m{number}", level, "", "") for number, level in enumerate(levels)]


@pytest.mark.parametrize(
    ("most", "drawn"), [(0, set()), (1, {"m4"}), (2, {"m4", "m1"}), (3, {"m4", "m1", "m3"}), (9, {"m4", "m1", "m3", "m2"})]
)
def test_of_many_machines_the_worst_are_drawn(most: int, drawn: set[str]) -> None:
    assert page._worst({"a": cells_of(["s0", "s2", "none", "s1", "s3", "s0"])}, most) == drawn


def test_a_follower_gives_everything_once_even_if_its_reader_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minder.record.store.follow._WINDOW", 3)
    store = EventStore(tmp_path / "ledger.db")
    for number in range(10):
        store.insert(EventRow(float(number), kinds.NOTE if number % 3 else kinds.PAUSE, "{}"))
    follower, taken = EventFollower(store, (kinds.NOTE,)), list[float]()
    for event in follower.new():
        if event.time_s == 4.0:
            break  # it was not taken: the reader fails there
        taken.append(event.time_s)
    taken += [event.time_s for event in follower.new()]
    store.insert(EventRow(99.0, kinds.NOTE, "{}"))
    taken += [event.time_s for event in follower.new()]
    assert taken == [1.0, 2.0, 4.0, 5.0, 7.0, 8.0, 99.0]
    store.close()


def test_what_several_folds_want_is_read_once_and_given_to_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, decoded = EventStore(tmp_path / "ledger.db"), list[str]()
    for number in range(4):
        store.insert(EventRow(float(number), kinds.NOTE, json.dumps({"n": number}), "llm"))
        store.insert(EventRow(float(number), kinds.GENERATION_STARTED, json.dumps({"rank_machine": {"0": "m"}}), "llm"))
    load = events_module.read_json
    monkeypatch.setattr(events_module, "read_json", lambda text: (decoded.append(text), load(text))[1])
    reading, first, second = OneReading(store), list[object](), list[object]()

    def fails_once(event: LedgerEvent) -> None:
        if event.time_s == 2.0 and not second.count("failed"):
            second.append("failed")
            raise ValueError("a fold that fails")
        second.append(event.time_s)

    reading.feed(
        (kinds.NOTE, kinds.GENERATION_STARTED), lambda event: first.append((event.kind, event.payload)), bare=(kinds.GENERATION_STARTED,)
    )
    reading.feed((kinds.NOTE,), fails_once)
    with pytest.raises(ValueError), reading.current():
        pass
    for _ in range(2):
        with reading.current():
            assert first == [item for number in range(4) for item in ((kinds.NOTE, {"n": number}), (kinds.GENERATION_STARTED, {}))]
            assert second == [0.0, 1.0, "failed", 2.0, 3.0]
    store.insert(EventRow(9.0, kinds.NOTE, "{}", "llm"))
    decoded.clear()
    with reading.current():
        assert second[-1] == 9.0 and decoded == ["{}"]
    store.close()


@pytest.mark.parametrize(
    "payload", ['{"a": NaN, "b": Infinity}', '{"a": "\\ud800"}', '{"a": 123456789012345678901234567890, "b": 1e-7, "c": null}']
)
def test_a_payload_is_decoded_as_json_does(tmp_path: Path, payload: str) -> None:
    with contextlib.closing(EventStore(tmp_path / "ledger.db")) as store:
        store.insert(EventRow(1.0, kinds.NOTE, payload))
        (found,) = store.select(EventQuery())
    assert repr(found.payload) == repr(json.loads(payload))
