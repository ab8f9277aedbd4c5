"""What keeps pages of large sites quick says the same as what it replaces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from minder.model.topology import Parallelism
from minder.record.incidents import kinds
from minder.record.store.events import EventStore
from minder.record.store.follow import EventFollower
from minder.record.store.rows import EventRow
from serve.job_shapes import NO_LAYOUT
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
