"""A recording that a restarted controller goes on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from minder.ingest.sources.jobfile import RecordedJob
from minder.ingest.sources.recorder import Recorder
from minder.ingest.sources.recording import RecordingSource, read_recording
from minder.model.errors import RecordingError
from minder.model.evidence import Signal
from minder.model.telemetry import Sample
from minder.model.topology import Parallelism

JOB = RecordedJob("lab", ("m0", "m1"), parallelism=Parallelism(data=2))
START_S = 1_700_000_000.0


def samples(first: int, last: int) -> list[Sample]:
    return [Sample(START_S + second, machine, {"cpu_usage_ratio": 0.5}) for second in range(first, last) for machine in ("m0", "m1")]


def exit_of(machine: str, at_s: float) -> Signal:
    return Signal(START_S + at_s, "exit", machine, "gone", 0, data={"signal": 9})


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_it_is_one_recording_whether_its_first_writer_was_killed_or_ended(tmp_path: Path, how: str) -> None:
    first = Recorder(tmp_path / "r", JOB, part_rows=4)
    first.append_samples(samples(0, 10))
    first.append_signals([exit_of("m0", 3.0)])
    first.note_ranks(1, {0: "m0"})
    if how == "ended":
        first.close()
    else:
        first.flush()
        with open(tmp_path / "r/events.jsonl", "a") as events:
            events.write('{"time": "2023-11-14T22')  # killed within a line
    with Recorder(tmp_path / "r", JOB, resume=True) as second:
        second.append_samples(samples(12, 20))
        second.append_signals([exit_of("m0", 3.01), exit_of("m1", 3.01), exit_of("m0", 15.0)])
        second.note_ranks(2, {0: "m1"})
    recording = read_recording(tmp_path / "r")
    rows = RecordingSource(recording).collect(START_S + 100.0)
    assert sorted({round(sample.time_s - START_S) for sample in rows}) == [*range(10), *range(12, 20)]
    assert len(rows) == 2 * 18
    assert [(signal.machine, round(signal.time_s - START_S, 2)) for signal in recording.signals] == [
        ("m0", 3.0),
        ("m1", 3.01),
        ("m0", 15.0),
    ]
    assert '"generation": 1' in (tmp_path / "r/ranks.json").read_text() and '"generation": 2' in (tmp_path / "r/ranks.json").read_text()


def test_another_run_does_not_write_into_it(tmp_path: Path) -> None:
    Recorder(tmp_path / "r", JOB).close()
    with pytest.raises(RecordingError, match="already holds a recording"):
        Recorder(tmp_path / "r", JOB)


def test_resuming_where_nothing_was_begun_begins(tmp_path: Path) -> None:
    with Recorder(tmp_path / "r", JOB, resume=True) as recorder:
        recorder.append_samples(samples(0, 2))
    assert read_recording(tmp_path / "r")
