"""What strangers upload: the same lines as `minder replay`, or one line that says what is wrong. Never a 5xx, never a hang."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minder.cli import main
from minder.model.errors import BadInputError
from serve.scoring import worker
from serve.scoring.pool import Busy, Order, ScoringPool
from serve.settings import Limits

As = Callable[..., dict[str, str]]
BOUNDS = {"rows": 5000, "machines": 20, "span_s": 86_400.0, "cells": 1_000_000}
PARQUET = {"Content-Type": "application/vnd.apache.parquet"}
BEGIN_S = 1_700_000_000


@pytest.fixture
def limits() -> Limits:
    return Limits(upload_bytes=1_000_000, upload_rows=5000, scoring_bytes=1024**3)


def table(rows: int = 60, **columns: Any) -> pl.DataFrame:
    """Two machines, a row per second each."""
    seconds = [BEGIN_S + row // 2 for row in range(rows)]
    frame = pl.DataFrame({"timestamp": seconds, "machine": ["m1", "m2"] * (rows // 2), "gpu_power_draw_watts": [500.0] * rows} | columns)
    return frame.with_columns((pl.col("timestamp") * 1000).cast(pl.Datetime("ms", "UTC")))


def parquet(frame: pl.DataFrame, **options: Any) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, **options)
    return buffer.getvalue()


def arrow(frame: pl.DataFrame, stream: bool = False) -> bytes:
    buffer = io.BytesIO()
    (frame.write_ipc_stream if stream else frame.write_ipc)(buffer)
    return buffer.getvalue()


def conclude(folder: Path, **bounds: float) -> dict[str, Any]:
    return worker.score(folder, "upload", None, BOUNDS | bounds)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording whose card falls off the bus: a verdict without much telemetry."""
    folder = tmp_path / "xid"
    folder.mkdir()
    (folder / "job.toml").write_text('name = "xid"\nmachines = ["m1", "m2"]\ngpus_per_machine = 1\n')
    (folder / "telemetry.parquet").write_bytes(parquet(table()))
    event = {"time": "2023-11-14T22:13:40Z", "kind": "xid", "machine": "m1", "code": 79, "message": "NVRM: Xid 79, fallen off the bus"}
    (folder / "events.jsonl").write_text(json.dumps(event) + "\n")
    return folder


def test_a_recording_gets_the_lines_of_replay_and_every_form_of_a_table_the_same(
    http: httpx.Client, as_: As, recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = as_()
    assert main(["replay", str(recording)]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    parts = {"job": "job.toml", "telemetry": "telemetry.parquet", "events": "events.jsonl"}
    files = {part: ("../../../etc/passwd", (recording / name).read_bytes()) for part, name in parts.items()}
    answer = http.post("/v1/scores?name=xid", files=files, headers=headers)
    assert answer.status_code == 200, answer.text
    assert printed and answer.json()["verdicts"] == printed and answer.json()["rows"] == 60
    assert http.post("/v1/scores?until=2023-11-14T22:13:39Z", files=files, headers=headers).json()["verdicts"] == []
    forms = {
        "application/vnd.apache.parquet": parquet(table()),
        "application/vnd.apache.arrow.file": arrow(table()),
        "application/vnd.apache.arrow.stream": arrow(table(), stream=True),
        "application/json": json.dumps({"samples": table().with_columns(pl.col("timestamp").dt.epoch("s")).to_dicts()}).encode(),
    }
    found = [http.post("/v1/scores", content=body, headers=headers | {"Content-Type": kind}) for kind, body in forms.items()]
    assert [item.status_code for item in found] == [200] * 4, [item.text for item in found]
    short = ["the samples span 29 s: a machine is compared after 30 s"]
    expected = {"recording": "upload", "rows": 60, "machines": 2, "verdicts": [], "not_judged": short, "notes": []}
    assert [item.json() for item in found] == [expected] * 4


def bomb() -> bytes:
    """Some kilobytes that stand for ten million rows."""
    rows = 10_000_000
    frame = pl.DataFrame({"machine": pl.repeat("m1", rows, eager=True), "gpu_power_draw_watts": pl.repeat(1.0, rows, eager=True)})
    return parquet(frame.with_columns(timestamp=pl.lit(BEGIN_S * 1000).cast(pl.Datetime("ms", "UTC"))), compression="zstd")


@pytest.mark.lab
def test_hostile_uploads_are_refused_in_one_line_and_the_next_one_is_scored(http: httpx.Client, as_: As, tmp_path: Path) -> None:
    headers, good = as_(), parquet(table())
    packed = bomb()
    assert len(packed) < 100_000
    tries: list[tuple[int, str, dict[str, Any]]] = [
        (422, "no readable parquet", {"content": good[:-20], "headers": PARQUET}),
        (422, "is not Parquet", {"content": b"PK\x03\x04" + bytes(100), "headers": PARQUET}),
        (422, "is not Parquet", {"content": b"", "headers": PARQUET}),
        (422, "10000000 rows", {"content": packed, "headers": PARQUET}),
        (422, "is not Arrow", {"content": good, "headers": {"Content-Type": "application/vnd.apache.arrow.file"}}),
        (415, "Content-Type must be one of", {"content": good, "headers": {"Content-Type": "text/csv"}}),
        (415, "Content-Type must be one of", {"content": good}),
        (413, "larger than the 1000000 bytes", {"content": bytes(1_000_001), "headers": PARQUET}),
        (413, "larger than the 1000000 bytes", {"content": (bytes(100_000) for _ in range(11)), "headers": PARQUET}),
        (422, "part", {"files": {"../job.toml": b"x"}}),
        (422, 'part "job" is missing', {"files": {"telemetry": good}}),
        (422, "job.toml cannot be read", {"files": {"job": b"\xff\xfe", "telemetry": good}}),
        (422, "query.name", {"content": good, "headers": PARQUET, "params": {"name": "../../etc"}}),
        (422, "until is no time", {"content": good, "headers": PARQUET, "params": {"until": "soon"}}),
        (422, "Invalid JSON", {"content": b"[" * 100_000, "headers": {"Content-Type": "application/json"}}),
    ]
    for status, said, sent in tries:
        answer = http.post("/v1/scores", **sent | {"headers": headers | sent.get("headers", {})})
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), (said, answer.text)
        assert said in answer.json()["detail"] and "\n" not in answer.json()["detail"] and "minder-upload" not in answer.text, answer.text
    assert http.post("/v1/scores", content=good, headers=headers | PARQUET).status_code == 200


@pytest.mark.lab
def test_a_process_that_died_is_replaced_and_an_upload_that_takes_too_long_leaves_nothing(
    http: httpx.Client, as_: As, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, service: Any
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "uploads"))
    (tmp_path / "uploads").mkdir()
    headers = as_() | PARQUET
    assert http.post("/v1/scores", content=parquet(table()), headers=headers).status_code == 200
    (process,) = service.scoring._free
    psutil.Process(process.pid).kill()
    while process.returncode is None:
        http.get("/v1/health")
    assert http.post("/v1/scores", content=parquet(table()), headers=headers).status_code == 200
    object.__setattr__(service.scoring._limits, "scoring_s", 0.0)
    answer = http.post("/v1/scores", content=parquet(table()), headers=headers)
    assert answer.status_code == 422 and "took longer than 0 s" in answer.json()["detail"]
    assert list((tmp_path / "uploads").iterdir()) == []


def test_what_became_of_uploads_is_counted(http: httpx.Client, as_: As, service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours (failed), the client's (refused, too many at once too), or well."""

    failures = [Busy("as many as may be scored at once"), RuntimeError("a defect")]

    async def fail(order: Order) -> Any:
        raise failures.pop(0)

    def post(content: bytes) -> int:
        return http.post("/v1/scores", content=content, headers=as_() | PARQUET).status_code

    statuses = [post(parquet(table())), post(b"no table")]
    monkeypatch.setattr(service.scoring, "score", fail)
    statuses += [post(parquet(table())) for _ in range(2)]
    assert statuses == [200, 422, 429, 500]
    counted = {what: service.metrics.uploads.labels(what)._value.get() for what in ("scored", "refused", "failed")}
    assert counted == {"scored": 1, "refused": 2, "failed": 1}


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (table().drop("machine"), 'column "machine"'),
        (table().with_columns(machine=pl.lit(7)), 'column "machine" of strings'),
        (table().with_columns(timestamp=pl.lit("now")), "column timestamp is String"),
        (table().with_columns(timestamp=pl.lit(None, dtype=pl.Datetime("ms", "UTC"))), "has no timestamp"),
        (table(gpu_power_draw_watts=[-500.0] * 60), "gpu_power_draw_watts is -500 in row 1"),
        (table(gpu_power_draw_watts=["500"] * 60), "make it a float"),
        (table().with_columns(pl.col("timestamp") + pl.duration(days=pl.int_range(60))), "send 86400 s at most"),
        (table().with_columns(pl.col("timestamp").dt.offset_by("9000y")), "after 2100"),
        (table().with_columns(pl.col("timestamp").dt.offset_by("-90y")), "before 1970"),
        (table().with_columns(machine=pl.format("m{}", pl.int_range(60))), "60 machines: send 20 at most"),
        (table().with_columns(machine=pl.lit(None, dtype=pl.String)), "no machine is named"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_right_is_refused(tmp_path: Path, frame: pl.DataFrame, said: str) -> None:
    (tmp_path / "upload.parquet").write_bytes(parquet(frame))
    with pytest.raises(BadInputError, match=said) as caught:
        conclude(tmp_path)
    assert "\n" not in str(caught.value)


def test_nan_and_infinity_are_no_data_and_no_verdict(tmp_path: Path) -> None:
    values = [float("nan"), float("inf"), float("-inf"), 1e300, -1e300, 500.0] * 10
    (tmp_path / "upload.parquet").write_bytes(parquet(table(gpu_power_draw_watts=values, machine_note=["x"] * 60)))
    found = conclude(tmp_path)
    assert found["verdicts"] == [] and any("machine_note" in note for note in found["notes"])


def test_a_tiny_interval_cannot_make_the_grid_explode(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text('machines = ["m1", "m2"]\nsample_interval_seconds = 1e-300\n')
    (tmp_path / "telemetry.parquet").write_bytes(parquet(table()))
    with pytest.raises(BadInputError, match="values on the grid"):
        conclude(tmp_path)


@pytest.fixture(scope="module")
def read() -> Iterator[Callable[[Path], dict[str, Any]]]:
    """read(folder) -> what the service makes of the upload in it, in a process of its own: native readers may die of a damaged table."""
    bounds = {f"upload_{name}": value for name, value in BOUNDS.items() if name != "span_s"}
    pool = ScoringPool(Limits(**bounds, upload_span_s=BOUNDS["span_s"], scoring_bytes=1024**3, scoring_s=60.0))  # type: ignore[arg-type]
    with asyncio.Runner() as runner:
        yield lambda folder: runner.run(pool.score(Order(folder, "upload")))
        runner.run(pool.close())


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_tables_and_odd_documents_never_break_the_reader(
    data: st.DataObject, read: Callable[[Path], dict[str, Any]], tmp_path: Path
) -> None:
    """A whole table with bytes changed or cut off, or JSON of any shape: a result or a refusal, in a moment."""
    for path in tmp_path.iterdir():
        path.unlink()
    if data.draw(st.booleans()):
        whole = bytearray(GOOD)
        for _ in range(data.draw(st.integers(1, 4))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        (tmp_path / "upload.parquet").write_bytes(whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole)
    else:
        scalar = st.none() | st.floats() | st.integers() | st.text("abm1é\0/.-:", max_size=8) | st.booleans()
        row = st.dictionaries(st.sampled_from(["timestamp", "machine", "device", "gpu_power_draw_watts", "x", ""]), scalar, max_size=5)
        event = st.dictionaries(st.sampled_from(["time", "kind", "machine", "code"]), scalar | st.lists(scalar, max_size=2), max_size=4)
        document = {"samples": data.draw(st.lists(row, max_size=4)), "events": data.draw(st.lists(event, max_size=2))}
        (tmp_path / "upload.json").write_text(json.dumps(document))
    try:
        assert json.dumps(read(tmp_path), allow_nan=False)
    except BadInputError as refused:
        assert str(refused) and "\n" not in str(refused) and str(tmp_path) not in str(refused) and "took longer" not in str(refused)


GOOD = parquet(table(20))


def test_one_sample_is_not_judged_rather_than_healthy(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "upload.json").write_text(json.dumps({"samples": [{"timestamp": BEGIN_S, "machine": "m1", "gpu_power_draw_watts": 1.0}]}))
    result = conclude(tmp_path)
    assert result["verdicts"] == [] and result["rows"] == 1
    assert "the samples span 0 s: a machine is compared after 30 s" in result["not_judged"]
