"""Relative MFU: work a second and machine, by the best ten minutes of the same code; unknown is never 1."""

from __future__ import annotations

from typing import Any

import pytest

from minder.act.controller.reading.work_rate import WorkRate
from minder.model.history import LedgerEvent
from minder.model.observation import WorkerView
from minder.record.incidents import kinds


class Played:
    """A job that is looked at every ten seconds."""

    def __init__(self, past: list[LedgerEvent] | None = None) -> None:
        self.notes: list[dict[str, Any]] = []
        self.rate = WorkRate(lambda: past or [], lambda kind, payload: self.notes.append(payload))
        self.now_s, self.work, self.generation, self.update, self.machines = 0.0, 0.0, 1, 0, 4

    def run(self, seconds: float, speed: float, unit: str | None = "tokens") -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 10.0
            self.work += 10.0 * speed
            behind = WorkerView(0, 1, 0, "running", self.generation, work=None if unit is None else self.work / 2, work_unit=unit)
            newest = WorkerView(0, 2, 1, "running", self.generation, work=None if unit is None else self.work, work_unit=unit)
            old = WorkerView(0, 3, 2, "running", self.generation - 1, work=1e12, work_unit="tokens")
            self.rate.note(self.now_s, (behind, newest, old), self.generation, self.update, self.machines)

    def restart(self, **changed: int) -> None:
        self.generation, self.work = self.generation + 1, 0.0
        for name, value in changed.items():
            setattr(self, name, value)

    @property
    def relative(self) -> float | None:
        status = self.rate.status()
        return None if status is None else status["relative"]


def test_steps_that_carry_no_work_are_unknown() -> None:
    played = Played()
    played.run(1200, 100, unit=None)
    assert played.rate.status() is None and played.notes == []


def test_the_first_ten_minutes_are_unknown() -> None:
    played = Played()
    played.run(590, 100)
    assert played.relative is None
    played.run(30, 100)
    assert played.relative == pytest.approx(1.0)


def test_a_slower_job_is_measured_by_its_best_ten_minutes() -> None:
    played = Played()
    played.run(1300, 100)
    played.run(1300, 75)
    assert played.relative == pytest.approx(0.75)
    assert played.notes[0]["rate"] == pytest.approx(25.0)  # a second and machine


def test_a_standstill_counts() -> None:
    played = Played()
    played.run(700, 100)
    played.run(300, 0)
    assert played.relative == pytest.approx(0.5, abs=0.02)


def test_a_restart_begins_ten_minutes_anew_and_keeps_the_best() -> None:
    played = Played()
    played.run(700, 100)
    played.restart()
    played.run(300, 50)
    assert played.relative is None
    played.run(400, 50)
    assert played.relative == pytest.approx(0.5)


def test_another_version_of_the_code_has_a_best_of_its_own() -> None:
    played = Played()
    played.run(700, 100)
    played.restart(update=1)
    played.run(700, 50)
    assert played.relative == pytest.approx(1.0)


def test_a_job_with_fewer_machines_is_measured_by_machine() -> None:
    played = Played()
    played.run(700, 100)
    played.restart(machines=2)
    played.run(700, 50)
    assert played.relative == pytest.approx(1.0)


def test_the_ledger_has_a_line_an_hour() -> None:
    played = Played()
    played.run(3 * 3600, 100)
    assert len(played.notes) == 3


def test_the_best_outlives_a_controller() -> None:
    payload = {"update": 0, "unit": "tokens", "rate": 40.0, "best": 50.0, "relative": 0.8, "machines": 4}
    played = Played([LedgerEvent(1, 0.0, kinds.WORK, "job", None, None, payload)])
    played.run(700, 100)
    assert played.relative == pytest.approx(0.5)


def test_a_clock_that_is_set_makes_no_rate() -> None:
    played = Played()
    played.run(700, 100)
    played.now_s += 86_400.0
    played.rate.move(86_400.0)
    played.run(100, 100)
    assert played.relative == pytest.approx(1.0, abs=0.02)
