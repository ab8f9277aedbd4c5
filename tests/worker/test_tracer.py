"""The tracer in a training loop: it writes what `minder whatif` reads, and nothing that goes wrong with it reaches the loop."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from minder.diagnose.step_traces.analysis import analyse
from minder.diagnose.step_traces.meta import JobLayout
from minder.diagnose.step_traces.sources import merge_folder, read_source
from minder.edge.worker import tracer
from minder.edge.worker.tracer import is_sampled, trace_step
from minder.model.errors import TraceError


def one_step(step: int, folder: Path | None, place: tuple[int, int], seconds: float = 0.0) -> None:
    """Two microbatches of a stage of two, without real work: times are said, not waited for."""
    dp_rank, stage = place
    with trace_step(step, dp_rank, stage, sample=1.0, folder=folder) as trace:
        begin_s = trace.now()
        for microbatch in (0, 1):
            if stage == 1:
                trace.add("forward-recv", begin_s + 0.1 * microbatch, begin_s + 0.1 * microbatch + 0.11)
            at_s = begin_s + 0.1 * microbatch + 0.11 * stage
            trace.add("forward-compute", at_s, at_s + 0.1 + seconds, microbatch, 0)
            if stage == 0:
                trace.add("forward-send", at_s + 0.1, at_s + 0.11)
        for microbatch in (0, 1):
            at_s = begin_s + 0.5 + 0.2 * microbatch + 0.21 * (1 - stage)
            if stage == 0:
                trace.add("backward-recv", at_s - 0.2, at_s)
            trace.add("backward-compute", at_s, at_s + 0.2 + seconds, microbatch, 0)
            if stage == 1:
                trace.add("backward-send", at_s + 0.2, at_s + 0.21)


def trace_job(folder: Path, monkeypatch: pytest.MonkeyPatch, steps: int = 2) -> None:
    for dp_rank in (0, 1):
        for stage in (0, 1):
            monkeypatch.setenv("RANK", str(stage * 2 + dp_rank))
            monkeypatch.setattr(tracer, "_writer", None)
            for step in range(steps):
                one_step(step, folder, (dp_rank, stage))
            assert tracer.flush()
            (file,) = folder.glob("trace-rank*-pid*.jsonl")
            file.rename(folder / f"done-{dp_rank}-{stage}.jsonl")


def test_what_is_traced_can_be_analysed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace_job(tmp_path, monkeypatch)
    analysis = analyse(read_source(tmp_path, JobLayout(2, 2)))
    assert analysis.trace.steps == (0, 1)
    assert analysis.trace.rank_PD.tolist() == [[0, 1], [2, 3]]
    assert analysis.finding.cause == "none"
    merge_folder(tmp_path).write_parquet(tmp_path / "whole.parquet")
    assert read_source(tmp_path / "whole.parquet", JobLayout(2, 2)).duration_NTD.shape == analysis.trace.duration_NTD.shape


def test_steps_that_a_rank_missed_are_left_out_and_a_line_cut_off_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace_job(tmp_path, monkeypatch, steps=3)
    last = tmp_path / "done-1-1.jsonl"
    lines = last.read_text().splitlines()
    kept = [line for line in lines if json.loads(line)["step"] < 2]
    last.write_text("\n".join([*kept, lines[-1][:40]]))
    assert read_source(tmp_path, JobLayout(2, 2)).steps == (0, 1)
    last.write_text("\n".join([lines[0][:40], *kept]))
    with pytest.raises(TraceError, match=r"done-1-1\.jsonl line 1"):
        read_source(tmp_path, JobLayout(2, 2))


def test_tensor_parallel_ranks_of_a_worker_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace_job(tmp_path, monkeypatch)
    twin = [json.loads(line) | {"rank": 7} for line in (tmp_path / "done-1-1.jsonl").read_text().splitlines()]
    (tmp_path / "twin.jsonl").write_text("".join(json.dumps(row) + "\n" for row in twin))
    assert read_source(tmp_path, JobLayout(2, 2)).rank_PD[1, 1] == 3


def test_blocks_are_timed_and_unsampled_steps_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINDER_TRACE_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "5")
    for sample in (1.0, 0.0):
        with trace_step(3, dp_rank=1, stage=2, sample=sample) as trace, trace.op("forward-compute", mb=4, mc=0):
            assert trace.traced == (sample == 1.0)
            time.sleep(0.02)
    assert tracer.flush()
    (line,) = (tmp_path / f"trace-rank5-pid{os.getpid()}.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert {name: row[name] for name in ("dp_rank", "stage", "rank", "step", "optype", "mc", "mb_id")} == {
        "dp_rank": 1, "stage": 2, "rank": 5, "step": 3, "optype": "forward-compute", "mc": 0, "mb_id": 4
    }  # fmt: skip
    assert 0.02 <= row["duration"] < 5.0
    assert abs(row["start_ts"] - time.time()) < 60.0


def test_a_tenth_of_the_steps_is_sampled_without_a_rhythm() -> None:
    chosen = [step for step in range(100_000) if is_sampled(step, 0.1)]
    assert len(chosen) == pytest.approx(10_000, rel=0.02)
    for period in (2, 5, 10, 50, 100):  # a job that logs or evaluates every so many steps
        share = sum(step % period == 0 for step in chosen) / len(chosen)
        assert share == pytest.approx(1 / period, rel=0.25)
    assert not any(is_sampled(step, 0.0) for step in range(1000)) and all(is_sampled(step, 1.0) for step in range(1000))


def test_nothing_that_goes_wrong_reaches_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class DeviceLostError(Exception):
        """A device library's own: not everything derives from RuntimeError."""

    def broken() -> None:
        raise DeviceLostError

    before = tracer.lost()
    monkeypatch.setattr(tracer, "_writer", None)
    (tmp_path / "file").write_text("in the way")
    one_step(1, tmp_path / "file" / "traces", (0, 0))
    assert tracer.flush()
    with trace_step("seven", sample=1.0) as trace, trace.op("forward-compute"):  # type: ignore[arg-type]
        pass
    with trace_step(8, sample=1.0, folder=tmp_path, synchronize=broken) as trace, trace.op("forward-compute"):
        pass
    assert tracer.lost() >= before + 3


def test_a_disk_that_hangs_does_not_hold_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More steps than may wait are dropped, and counted."""
    monkeypatch.setattr(tracer, "_writer", None)
    monkeypatch.setattr(tracer._Writer, "_write", lambda self, batch: time.sleep(3600))
    before = tracer.lost()
    for step in range(200):
        one_step(step, tmp_path, (0, 0))
    assert tracer.lost() > before + 100
    assert not tracer.flush(timeout_s=0.05)
    monkeypatch.setattr(tracer, "_writer", None)


def test_a_step_whose_numbers_are_none_takes_no_other_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "_writer", None)
    before = tracer.lost()
    for step, dp_rank in ((1, 0), (2, "first"), (3, 0)):
        with trace_step(step, dp_rank, sample=1.0, folder=tmp_path) as trace, trace.op("forward-compute"):  # type: ignore[arg-type]
            pass
    assert tracer.flush()
    (file,) = tmp_path.iterdir()
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1, 3]
    assert tracer.lost() == before + 1


def test_steps_go_where_each_of_them_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "_writer", None)
    for step, name in enumerate(("one", "two", "two", "one")):
        with trace_step(step, sample=1.0, folder=tmp_path / name) as trace, trace.op("forward-compute"):
            pass
    assert tracer.flush()
    found = {folder.name: "".join(file.read_text() for file in folder.iterdir()).splitlines() for folder in tmp_path.iterdir()}
    assert {name: [json.loads(line)["step"] for line in lines] for name, lines in found.items()} == {"one": [0, 3], "two": [1, 2]}


def test_a_forked_child_writes_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "_writer", None)
    one_step(1, tmp_path, (0, 0))
    child = os.fork()
    if child == 0:
        one_step(2, tmp_path, (1, 0))
        os._exit(0 if tracer.flush() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tracer.flush()
    written = {
        file.stem.rpartition("pid")[2]: {json.loads(line)["step"] for line in file.read_text().splitlines()} for file in tmp_path.iterdir()
    }
    assert written == {str(os.getpid()): {1}, str(child): {2}}


def test_a_full_file_grows_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that an earlier process of this number has filled."""
    monkeypatch.setattr(tracer, "_writer", None)
    monkeypatch.setattr(tracer, "_LIMIT_BYTES", 3000)
    monkeypatch.setenv("RANK", "0")
    file = tmp_path / f"trace-rank0-pid{os.getpid()}.jsonl"
    file.write_text("x" * 2900)
    before = tracer.lost()
    one_step(1, tmp_path, (0, 0))
    assert tracer.flush()
    assert file.stat().st_size == 2900 and tracer.lost() == before + 1


def test_the_loop_s_own_error_passes_and_its_step_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "_writer", None)
    with (
        pytest.raises(ZeroDivisionError),
        trace_step(1, sample=1.0, folder=tmp_path) as trace,
        trace.op("forward-compute", mb=0, mc=0),
    ):
        _ = 1 / 0
    assert tracer.flush()
    assert list(tmp_path.iterdir()) == []


def test_the_name_in_a_script_is_light() -> None:
    import minder

    assert minder.trace_step is trace_step
