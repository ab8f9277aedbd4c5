"""A month that never was, as its controllers would have written it."""

from __future__ import annotations

from pathlib import Path

from minder.offline.reliability.failures import find_departures, repeat_offenders
from minder.offline.reliability.reading import read_account
from minder.record.incidents import Ledger
from minder.simulate.played import PlayedJob, play_month

BEGIN_S = 1_790_000_000.0
JOB = PlayedJob("llm", 64, incidents_per_machine_day=0.01)


def test_a_month_can_be_accounted_for(tmp_path: Path) -> None:
    play_month(tmp_path / "ledger.db", BEGIN_S, 10.0, 2, [JOB])
    account = read_account(str(tmp_path / "ledger.db"), "30d", "newest")
    (job,) = account.jobs
    assert len(job.losses) >= 3 and all(loss.incident.state == "closed" for loss in job.losses)
    assert job.ettr is not None and 0.9 < job.ettr < 1.0
    assert job.notes == ()
    departures = find_departures(account.incidents)
    assert len(departures) == len(job.losses)
    assert repeat_offenders(departures), "one machine is weak"


def test_the_same_seed_writes_the_same_month(tmp_path: Path) -> None:
    for name in ("one", "other"):
        play_month(tmp_path / f"{name}.db", BEGIN_S, 4.0, 3, [JOB])
    with Ledger(tmp_path / "one.db") as one, Ledger(tmp_path / "other.db") as other:
        assert one.events() == other.events() != []
