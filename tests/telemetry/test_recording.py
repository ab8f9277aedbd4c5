"""Recordings: what is read, what is refused and with which words, and what a recorder writes."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from minder.ingest.sources.events import Truth, read_truths
from minder.ingest.sources.jobfile import RecordedJob
from minder.ingest.sources.recorder import Recorder
from minder.ingest.sources.recording import RecordingSource, read_recording
from minder.ingest.windows import align_recording
from minder.model.errors import RecordingError
from minder.model.evidence import Signal
from minder.model.telemetry import Sample
from minder.model.topology import Parallelism

SHARED = Path(os.environ.get("MINDER_SHARED", Path(__file__).resolve().parents[3] / "shared"))
JOB = """
name = "j"
machines = ["m0", "m1"]
standbys = ["m2"]
gpus_per_machine = 2
sample_interval_seconds = 1.0
[parallelism]
tensor = 2
data = 2
"""
START_S = 1_772_431_951.0


def write(folder, job=JOB, telemetry=None, **files):
    folder.mkdir(exist_ok=True)
    if job is not None:
        (folder / "job.toml").write_text(job)
    if telemetry is not None:
        columns = {name: pl.Series(values) for name, values in telemetry.items() if name != "timestamp"}
        stamps = pl.Series(telemetry["timestamp"], dtype=pl.Datetime("ms", "UTC"))
        pl.DataFrame({"timestamp": stamps, **columns}).write_parquet(folder / "telemetry.parquet")
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def stamps(*offsets_s):
    return [datetime.fromtimestamp(START_S + offset, tz=UTC) for offset in offsets_s]


def telemetry(rows=4, **columns):
    return {"timestamp": stamps(*range(rows)), "machine": ["m0", "m1"] * (rows // 2), **columns}


def refused(folder):
    with pytest.raises(RecordingError) as caught:
        read_recording(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_only_job_toml_is_required_and_the_rest_is_no_data(tmp_path):
    recording = read_recording(write(tmp_path / "r1"))
    assert recording.name == "r1" and recording.machines == ("m0", "m1")
    assert recording.topology.rank_machine == {0: "m0", 1: "m0", 2: "m1", 3: "m1"}
    assert recording.signals == () and recording.start_s is None
    assert align_recording(recording).values_TMK.shape == (0, 2, 0)


def test_rows_in_any_order_of_several_exporters(tmp_path):
    power, cpu = [400.0, None, 410.0, None], [None, 0.5, None, 0.6]
    table = {
        "timestamp": stamps(1.9, 0.2, 0.9, 1.2), "machine": ["m0"] * 4, "gpu_power_draw_watts": power, "cpu_usage_ratio": cpu,
    }  # fmt: skip
    window = align_recording(read_recording(write(tmp_path / "r", telemetry=table)))
    values = {metric: window.values_TMK[:, 0, k].tolist() for k, metric in enumerate(window.metrics)}
    assert values == {"gpu_power_draw_watts": [410.0], "cpu_usage_ratio": [0.5]}
    assert window.times_T.tolist() == [START_S + 1.0]


def test_devices_become_their_machines_mean_and_the_deviating_one_is_named(tmp_path):
    table = {
        "timestamp": stamps(0.0, 0.0, 0.0), "machine": ["m0"] * 3, "device": ["gpu0", "gpu1", None],
        "gpu_power_draw_watts": [500.0, 100.0, None], "cpu_usage_ratio": [None, None, 0.5],
    }  # fmt: skip
    window = align_recording(read_recording(write(tmp_path / "r", telemetry=table)))
    assert window.values_TMK[0, 0].tolist() == [300.0, 0.5]
    assert window.devices == ("gpu0", "gpu1") and window.low_TMK[0, 0, 0] == 100.0


def test_a_percentage_where_a_ratio_is_due_is_refused_with_its_row(tmp_path):
    message = refused(write(tmp_path / "r", telemetry=telemetry(gpu_duty_cycle_ratio=[0.9, 0.8, 87.0, 0.7])))
    assert "gpu_duty_cycle_ratio is 87 in row 3: ratios run from 0 to 1; divide by 100" in message


def test_a_rare_impossible_value_is_a_gap_with_one_warning(tmp_path, caplog):
    values = [0.5] * 400
    values[7] = 3.0
    caplog.set_level(logging.WARNING)
    recording = read_recording(write(tmp_path / "r", telemetry=telemetry(400, cpu_usage_ratio=values)))
    assert np.isnan(recording.frames.values_NK[7, 0]) and np.count_nonzero(np.isnan(recording.frames.values_NK)) == 1
    assert len(caplog.records) == 1 and "cpu_usage_ratio" in caplog.text


@pytest.mark.parametrize("blank", [9223372036854775794.0, 2147483632.0, 140737488355328.0])
def test_blank_values_are_no_data_and_no_reason_to_refuse(tmp_path, blank):
    recording = read_recording(write(tmp_path / "r", telemetry=telemetry(gpu_power_draw_watts=[400.0, blank, 410.0, blank])))
    assert np.isnan(recording.frames.values_NK[:, 0]).tolist() == [False, True, False, True]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"timestamp": stamps(0), "cpu_usage_ratio": [0.5]}, 'no column "machine"'),
        ({"timestamp": stamps(0), "machine": ["x"], "cpu_usage_ratio": [0.5]}, "no row of a machine of job.toml; it names x"),
        ({"timestamp": stamps(0), "machine": pl.Series([None], dtype=pl.String), "cpu_usage_ratio": [0.5]}, "its column machine is empty"),
        ({"timestamp": stamps(0), "machine": ["m0"], "cpu_usage_ratio": ["high"]}, "cpu_usage_ratio is String"),
        ({"timestamp": [None], "machine": ["m0"], "cpu_usage_ratio": [0.5]}, "row 1 has no timestamp"),
    ],
)
def test_telemetry_that_cannot_be_used_is_refused(tmp_path, table, words):
    assert words in refused(write(tmp_path / "r", telemetry=table))


def test_a_file_that_is_no_parquet_is_refused(tmp_path):
    folder = write(tmp_path / "r")
    (folder / "telemetry.parquet").write_bytes(b"PAR1 but not really")
    assert "no readable parquet" in refused(folder)


def test_a_reader_that_panics_is_a_table_that_cannot_be_read(tmp_path, monkeypatch):
    """Some damaged pages do that to polars, whose panic is no Exception: it would be a traceback."""

    def panic(*unused, **options):
        raise pl.exceptions.PanicException("index out of bounds")

    monkeypatch.setattr(pl, "read_parquet", panic)
    assert "no readable parquet file (index out of bounds)" in refused(
        write(tmp_path / "r", telemetry=telemetry(cpu_usage_ratio=[0.1] * 4))
    )


def test_unknown_columns_machines_kinds_and_keys_are_one_warning_each(tmp_path, caplog):
    table = telemetry(cpu_usage_ratio=[0.1] * 4, fan_speed=[1.0] * 4, mood=["good"] * 4)
    table["machine"] = ["m0", "m1", "m0", "stranger"]
    events = '{"time": "2026-03-02T06:12:31Z", "kind": "solar flare"}\n' * 3
    folder = write(tmp_path / "r", 'colour = "red"\n' + JOB, table, events_jsonl=events)
    caplog.set_level(logging.WARNING)
    recording = read_recording(folder)
    assert recording.frames.metrics == ("cpu_usage_ratio",) and len(recording.frames.times_N) == 3
    assert len(caplog.records) == 4
    for word in ("colour", "fan_speed, mood", "stranger", "solar flare"):
        assert word in caplog.text


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (None, "job.toml is missing"),
        ("machines = [", "cannot be read"),
        ("machines = []", "machines is empty"),
        (JOB.replace("data = 2", "data = 3"), "2 machines x 2 GPUs = 4 ranks"),
        (JOB.replace('["m2"]', '["m1"]'), "m1 is both a machine and a standby"),
        (JOB.replace('["m0", "m1"]', '["m0", "m0"]'), "stands twice"),
        (JOB.replace("seconds = 1.0", "seconds = 0"), "sample_interval_seconds is 0"),
        (JOB.replace("tensor = 2", 'tensor = "two"'), "parallelism.tensor is 'two'"),
    ],
)
def test_a_job_that_disagrees_with_itself_is_refused(tmp_path, job, words):
    assert words in refused(write(tmp_path / "r", job))


def test_the_folder_of_a_run_names_the_recording_in_it(tmp_path, caplog):
    run = '[[machines]]\nname = "m0"\nagent = "http://127.0.0.1:9401"\n'
    assert refused(write(tmp_path / "r", run)).endswith("is no recording's: name the folder that record_dir or --record named")
    inside = write(tmp_path / "r/recording")
    assert refused(tmp_path / "r").endswith(f"is no recording's: its recording is {inside}")
    assert not caplog.records  # of its keys that no recording has


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([{"rank": 0, "machine": "m9"}], "machine 'm9' is not in job.toml"),
        ([{"rank": 0, "machine": "m0"}, {"rank": 0, "machine": "m1"}], "rank 0 stands twice"),
        ([{"rank": 4, "machine": "m0"}], "give 0 to 3"),
        ({"0": "m0"}, "give a list"),
    ],
)
def test_ranks_that_cannot_be_are_refused(tmp_path, ranks, words):
    assert words in refused(write(tmp_path / "r", ranks_json=json.dumps(ranks)))


def test_ranks_json_places_the_ranks(tmp_path):
    ranks = [{"rank": rank, "machine": machine, "generation": 1} for rank, machine in enumerate(["m1", "m1", "m0", "m0"])]
    later = [{"rank": 0, "machine": "m2", "generation": 2}]
    recording = read_recording(write(tmp_path / "r", ranks_json=json.dumps(ranks + later)))
    assert recording.topology.rank_machine == {0: "m1", 1: "m1", 2: "m0", 3: "m0"}
    assert recording.ranks[-1].machine == "m2"


def test_events_in_time_order_with_what_they_say(tmp_path):
    events = (
        '{"time": "2026-03-02T06:12:33Z", "kind": "exit", "machine": "m0", "rank": 1, "pid": 7, "code": null, "signal": 9}\n'
        '{"time": "2026-03-02T06:12:31.5Z", "kind": "xid", "machine": "m0", "device": "gpu3", "code": 79, "message": "fell off"}\n'
        '{"time": "2026-03-02T06:12:34Z", "kind": "st'
    )
    first, second = read_recording(write(tmp_path / "r", events_jsonl=events)).signals
    assert (first.kind, first.device, first.data["code"], first.message) == ("xid", "gpu3", 79, "fell off")
    assert (second.time_s, second.rank, second.pid, second.data["signal"]) == (1772431953.0, 1, 7, 9)


@pytest.mark.parametrize("line", ["[1]", "{", '{"kind": "exit"}', '{"kind": "exit", "time": "soon"}', '{"kind": "exit", "time": 5}'])
def test_a_broken_event_names_its_line(tmp_path, line):
    good = '{"time": "2026-03-02T06:12:31Z", "kind": "exit"}\n'
    assert "line 2" in refused(write(tmp_path / "r", events_jsonl=good + line + "\n" + good))


def test_a_cut_recording_knows_only_what_was_known(tmp_path):
    events = "".join(f'{{"time": "2026-03-02T06:12:3{n}Z", "kind": "log"}}\n' for n in range(1, 5))
    recording = read_recording(write(tmp_path / "r", telemetry=telemetry(cpu_usage_ratio=[0.1] * 4), events_jsonl=events))
    cut = recording.until(START_S + 1.0)
    assert cut.end_s == START_S + 1.0 and len(cut.frames.times_N) == 2 and len(cut.signals) == 2


def test_what_a_recorder_writes_reads_back(tmp_path):
    job = RecordedJob("lab", ("m0", "m1"), ("m2",), 1, Parallelism(data=2), 1.0, {"m0": {"rack": "r1"}})
    samples = [
        Sample(START_S + n + 0.25 * m, f"m{m}", {"cpu_usage_ratio": 0.1 * m, "steps_total": float(n), "nobody_knows": 1.0})
        for n in range(20) for m in range(2)
    ] + [Sample(START_S + 19.5, "m0", {"tcp_throughput_bytes_per_second": 1e6}, "eth0")]  # fmt: skip
    signal = Signal(START_S + 5, "exit", "m1", rank=1, data={"code": 1})
    truth = Truth("lab", "crash", "m1", START_S + 5, ("m1",))
    with Recorder(tmp_path / "lab", job, part_rows=7) as recorder:
        for sample in samples:
            recorder.append_samples([sample])
        recorder.append_signals([signal])
        recorder.note_ranks(0, {0: "m0", 1: "m1"})
        recorder.note_ranks(1, {0: "m0", 1: "m2"})
        recorder.note_truth(truth)
    recording = read_recording(tmp_path / "lab")
    assert recording.job == job and recording.signals == (signal,)
    assert recording.topology.rank_machine == {0: "m0", 1: "m1"}
    assert read_truths(tmp_path / "lab" / "truth.json") == (truth,)
    read = RecordingSource(recording).collect(START_S + 100)
    known = [Sample(s.time_s, s.machine, {k: v for k, v in s.values.items() if k != "nobody_knows"}, s.device) for s in samples]
    assert read == sorted(known, key=lambda s: s.time_s)
    assert sorted(path.name for path in (tmp_path / "lab").iterdir()) == [
        "events.jsonl", "job.toml", "ranks.json", "telemetry.parquet", "truth.json",
    ]  # fmt: skip


def test_a_recorder_that_is_killed_leaves_what_it_flushed(tmp_path):
    job = RecordedJob("lab", ("m0",))
    recorder = Recorder(tmp_path / "lab", job, part_s=5.0)
    for n in range(20):
        recorder.append_samples([Sample(START_S + n, "m0", {"cpu_usage_ratio": 0.5})])
    recorder.append_signals([Signal(START_S, "log", "m0", "hello")])
    recording = read_recording(tmp_path / "lab")
    assert len(recording.frames.times_N) == 18 and len(recording.signals) == 1
    recorder.close()


def test_a_recorder_overwrites_nothing(tmp_path):
    write(tmp_path / "r")
    with pytest.raises(RecordingError, match="already holds a recording"):
        Recorder(tmp_path / "r", RecordedJob("lab", ("m0",)))


@pytest.mark.skipif(not (SHARED / "data" / "recordings").is_dir(), reason="the measuring samples are not beside the checkout")
@pytest.mark.parametrize(("name", "shape"), [("healthy", (1604, 16, 19)), ("coarse", (356, 24, 19))])
def test_measuring_samples_are_read_and_aligned(name, shape):
    recording = read_recording(SHARED / "data" / "recordings" / name)
    window = align_recording(recording)
    assert window.values_TMK.shape == shape
    missing_K = np.isnan(window.values_TMK).mean(axis=(0, 1))
    assert ((missing_K < 0.03) | (missing_K == 1.0)).all()
    assert window.present_TM.mean() > 0.99
