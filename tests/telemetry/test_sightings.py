"""What a controller saw is read back as it was, cut anywhere, after any end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from minder.ingest.sources.jobfile import RecordedJob
from minder.ingest.sources.recorder import Recorder
from minder.ingest.sources.recording import read_recording
from minder.model.errors import RecordingError
from minder.model.evidence import CaptureFinding, Evidence, Suspect
from minder.model.observation import JobView, MachineView, Observation, WorkerView
from minder.model.telemetry import ConnectivityProbe, Flow
from minder.model.topology import Parallelism

JOB = RecordedJob("lab", ("m0", "m1"), ("s0",), parallelism=Parallelism(data=2))
START_S = 1_700_000_000.0


def tick(second: float, generation: int = 1, flows: tuple[Flow, ...] = ()) -> Observation:
    at_s = START_S + second
    placed = {0: "m0", 1: "m1"} if generation == 1 else {0: "m0", 1: "s0"}
    job = JobView("lab", generation, "running", tuple(placed.values()), ("s0",) if generation == 1 else (), (), placed, 0.0, START_S)
    workers = tuple(
        WorkerView(slot, 100 + slot, slot, "running", generation, step=int(second), step_time_s=at_s - 0.25, alive_time_s=at_s)
        for slot in range(2)
    )
    fleet = {"m0": MachineView("m0", 0.5, 0.25, workers), "m1": MachineView("m1", None, 7.5), "s0": MachineView("s0", 0.5, 0.5)}
    return Observation(at_s, job=job, fleet=fleet, flows=flows, clock_error_s=0.02)


def a_flow() -> Flow:
    return Flow("m0", START_S + 2.5, 100, "10.0.0.1:7", "10.0.0.2:8", 0, 512, 3, 9, 4, 0.25, 1000, 2000, 1.5, 2.5)


def record(folder: Path, ticks: list[Observation], *, end: str = "closed", resume: bool = False) -> None:
    recorder = Recorder(folder, JOB, part_rows=6, resume=resume)
    for observation in ticks:
        recorder.append_sighting(observation)
    recorder.close() if end == "closed" else recorder.flush()


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_every_tick_comes_back_as_it_was(tmp_path: Path, end: str) -> None:
    tried = (
        ConnectivityProbe("m0", START_S + 2.5, "10.0.0.1", "10.0.0.2", False, 1.5),
        ConnectivityProbe("m0", START_S + 2.5, "10.0.0.1", "10.0.0.3", True, 0.25),
    )
    why = Evidence("stacks", "m1", "outside any collective: reading a file", since_s=START_S)
    suspect = Suspect(START_S + 2, "stacks", "machine", ("m1",), "stall", 0.9, START_S + 1, "evict", (why,))
    said = (CaptureFinding(START_S + 2, "stacks", (suspect,)), CaptureFinding(START_S + 2, "collectives"))
    third = replace(tick(3.0, flows=(a_flow(),)), attempts=tried, statements=said)
    ticks = [tick(1.0), tick(2.125), third, tick(4.0, generation=2)]
    record(tmp_path / "r", ticks, end=end)
    found = read_recording(tmp_path / "r").sightings
    assert [(item.time_s, item.job, item.fleet, item.flows, item.clock_error_s, item.attempts, item.statements) for item in found] == [
        (item.now_s, item.job, item.fleet, tuple(item.flows), item.clock_error_s, tuple(item.attempts), item.statements) for item in ticks
    ]


def test_a_restarted_writer_goes_on_behind_the_first(tmp_path: Path) -> None:
    record(tmp_path / "r", [tick(1.0), tick(2.0)], end="killed")
    with open(tmp_path / "r/states.jsonl", "a") as states:
        states.write('{"time": "2023-11-14T22')  # killed within a line
    record(tmp_path / "r", [tick(3.0), tick(4.0, generation=2)], resume=True)
    found = read_recording(tmp_path / "r").sightings
    assert [(item.time_s - START_S, item.job.generation) for item in found] == [(1.0, 1), (2.0, 1), (3.0, 1), (4.0, 2)]


def test_cut_at_a_time_later_ticks_are_not_known(tmp_path: Path) -> None:
    record(tmp_path / "r", [tick(second, flows=(a_flow(),)) for second in (1.0, 2.0, 3.0)])
    assert len(read_recording(tmp_path / "r").until(START_S + 2.0).sightings) == 2


def test_a_recording_of_somebody_else_has_none(tmp_path: Path) -> None:
    with Recorder(tmp_path / "r", JOB):
        pass
    assert read_recording(tmp_path / "r").sightings == ()


@pytest.mark.parametrize("name", ["fleet.parquet", "states.jsonl"])
def test_a_spoilt_file_is_named(tmp_path: Path, name: str) -> None:
    record(tmp_path / "r", [tick(1.0), tick(2.0, generation=2)])
    (tmp_path / "r" / name).write_text('{"time": 3}\n{}\n')
    with pytest.raises(RecordingError, match=name):
        read_recording(tmp_path / "r")


def test_connections_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    record(tmp_path / "r", [tick(1.0, flows=(replace(a_flow(), unsent_bytes=7),))])
    path = tmp_path / "r/flows.parquet"
    pl.read_parquet(path).drop("unsent_bytes").write_parquet(path)
    assert read_recording(tmp_path / "r").sightings[0].flows == (a_flow(),)
