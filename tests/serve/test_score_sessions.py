"""A stream of rows is scored: appended piece by piece as NDJSON, bounded, with the line that does not hold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.record.api.scores import ScoreJob
from serve.scoring.layout import LAST, NEW, ROWS
from serve.scoring.rows import read_rows
from serve.scoring.sessions import ScoreSessions
from serve.scoring.unpack import Bounds
from serve.settings import Limits
from serve.state import Service

As = Callable[..., dict[str, str]]
BEGIN_S = 1_700_000_000
NDJSON = {"Content-Type": "application/x-ndjson"}
BOUNDS = Bounds(rows=1000, machines=20, span_s=86_400.0, cells=1_000_000)


@pytest.fixture
def limits() -> Limits:
    return Limits(upload_bytes=1_000_000, upload_rows=400, scoring_bytes=1024**3, score_sessions_of_one=2)


def row(second: int, machine: str = "m1", **values: Any) -> dict[str, Any]:
    return {"timestamp": BEGIN_S + second, "machine": machine, "gpu_power_draw_watts": 500.0} | values


def lines(*rows: Any) -> bytes:
    return b"".join((item if isinstance(item, bytes) else json.dumps(item).encode()) + b"\n" for item in rows)


def read(folder: Path, *rows: Any, newest_s: float | None = None, bounds: Bounds = BOUNDS) -> dict[str, Any]:
    (folder / ROWS).write_bytes(lines(*rows))
    return read_rows(folder, bounds, newest_s)


def test_rows_are_appended_and_scored_as_one_upload(http: httpx.Client, as_: As) -> None:
    headers = as_()
    begun = http.post("/v1/scores/sessions", json={"name": "llm"}, headers=headers)
    assert begun.status_code == 201 and begun.json()["rows"] == 0, begun.text
    path = f"/v1/scores/sessions/{begun.json()['id']}"
    empty = http.get(f"{path}/verdicts", headers=headers).json()
    assert empty["verdicts"] == [] and empty["not_judged"] == ["the session holds no row"]
    every = [row(second, machine) for second in range(40) for machine in ("m1", "m2", "m3")]
    first = http.post(f"{path}/rows", content=iter([lines(*every[:30])[:100], lines(*every[:30])[100:]]), headers=headers | NDJSON)
    assert first.status_code == 200 and first.json()["added"] == 30, first.text
    stale = http.post(f"{path}/rows?after=0", content=lines(*every[:30]), headers=headers | NDJSON)
    assert stale.status_code == 409 and "with after=30" in stale.json()["detail"]
    second = http.post(f"{path}/rows?after=30", content=lines(*every[30:]), headers=headers | NDJSON).json()
    assert (second["added"], second["taken"], second["rows"], second["machines"]) == (90, 120, 120, ["m1", "m2", "m3"])
    assert second["end"] == "2023-11-14T22:13:59.000Z"
    scored = http.get(f"{path}/verdicts", headers=headers).json()
    whole = http.post("/v1/scores?name=llm", json={"samples": every}, headers=headers).json()
    assert scored == whole and scored["rows"] == 120 and scored["not_judged"] == []
    shown = http.get("/v1/scores/sessions", headers=headers).json()["items"]
    assert [item["taken"] for item in shown] == [120]
    stranger = as_("admin")
    assert http.get(path, headers=stranger).status_code == 404 and http.get("/v1/scores/sessions", headers=stranger).json()["items"] == []
    assert http.delete(path, headers=headers).status_code == 204
    gone = http.post(f"{path}/rows", content=lines(row(0)), headers=headers | NDJSON)
    assert gone.status_code == 404 and "begin another" in gone.json()["detail"]


def test_what_came_before_a_bad_line_is_kept(http: httpx.Client, as_: As, service: Service) -> None:
    headers = as_()
    path = f"/v1/scores/sessions/{http.post('/v1/scores/sessions', json={}, headers=headers).json()['id']}"
    answer = http.post(f"{path}/rows", content=lines(row(0), b"", row(1), b"{", row(2)), headers=headers | NDJSON)
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"].startswith("line 4: is no JSON object") and "(2 rows before it are kept" in answer.json()["detail"]
    assert http.get(path, headers=headers).json()["taken"] == 2
    wrong = http.post(f"{path}/rows", json=row(3), headers=headers)
    assert wrong.status_code == 415 and "application/x-ndjson" in wrong.json()["detail"]
    large = http.post(f"{path}/rows", content=bytes(1_000_001), headers=headers | NDJSON)
    assert large.status_code == 413
    http.post("/v1/scores/sessions", json={}, headers=headers)
    many = http.post("/v1/scores/sessions", json={}, headers=headers)
    assert many.status_code == 429 and "end one with DELETE" in many.json()["detail"] and many.headers["Retry-After"]
    folders = [item.folder for item in service.scored._open.values()]
    service.scored.close()
    assert len(folders) == 2 and not any(folder.exists() for folder in folders)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b"[1]", "is no JSON object"),
        (b'{"timestamp": NaN}', "is no JSON object"),
        (b"[" * 50_000, "is no JSON object"),
        (b" " * 70_000, "is longer than 65536 bytes"),
        (row(1, machine=""), "machine must be a name"),
        (row(1, machine="../x"), "machine must be a name"),
        (row(1, device=3), "device must be a string"),
        (row(1, timestamp="soon"), "timestamp is no time"),
        (row(1, timestamp=True), "timestamp is no time"),
        ({"machine": "m1"}, "timestamp is no time"),
        (row(90_000), "timestamp lies more than 86400 s"),
        (row(-90_000), "timestamp lies more than 86400 s"),
        (row(1, gpu_power_draw_watts="500"), "gpu_power_draw_watts must be a number"),
        (row(1, gpu_power_draw_watts=True), "gpu_power_draw_watts must be a number"),
        (row(1, gpu_power_draw_watts=10**400), "give a finite number"),
        (row(1, gpu_power_draw_watts=-500.0), "mend its unit"),
        (row(1, gpu_duty_cycle_ratio=97.0), "divide by 100"),
        (row(1) | {f"metric_{number}": 1.0 for number in range(2001)}, "more than 2000 metrics"),
    ],
)  # fmt: skip
def test_a_line_that_does_not_hold_is_named(tmp_path: Path, bad: Any, said: str) -> None:
    found = read(tmp_path, row(0), bad, row(2))
    assert found["added"] == 1 and found["refused"].startswith("line 2: ") and said in found["refused"], found["refused"]


def test_a_blank_reading_and_a_foreign_metric_are_taken(tmp_path: Path) -> None:
    found = read(tmp_path, row(0, gpu_power_draw_watts=None), row(1, gpu_power_draw_watts=float(2**63)), row(2, own_metric=-7))
    assert (found["added"], found["refused"]) == (3, None)
    assert read(tmp_path, *(row(second) for second in range(9)), bounds=Bounds(5, 20, 86_400.0, 1000))["refused"].startswith("line 6: ")


def test_a_stream_without_end_keeps_its_newest_rows(tmp_path: Path) -> None:
    """What is held is bounded by rows and by time; a table that is small is gone on with."""
    now = [0.0]
    sessions = ScoreSessions(Limits(upload_rows=120_000, upload_span_s=86_400.0, score_session_idle_s=60.0), lambda: now[0])
    found = asyncio.run(_begin(sessions))

    def append(begin_s: float, end_s: float, rows: int) -> bool:
        folder = tmp_path / str(begin_s)
        folder.mkdir()
        found.lend(folder)
        (folder / NEW).write_bytes(b"rows")
        went_on = (folder / LAST).exists()
        answer = {"added": rows, "machines": ["m1"], "begin_s": begin_s, "end_s": end_s}
        found.add(folder, answer, Limits(upload_rows=120_000, upload_span_s=86_400.0))
        return went_on

    assert [append(0.0, 10.0, 100), append(10.0, 20.0, 60_000), append(20.0, 30.0, 60_000)] == [False, True, False]
    assert (found.rows, found.taken, found.begin_s) == (60_000, 120_100, 20.0)
    append(90_000.0, 90_010.0, 1)
    assert (found.rows, found.begin_s, len(list(found.folder.iterdir()))) == (1, 90_000.0, 1)
    now[0] = 61.0
    assert sessions.find("t", found.id) is None and not found.folder.exists()


async def _begin(sessions: ScoreSessions) -> Any:
    found = sessions.begin("t", "s", ScoreJob())
    assert sessions.find("other", found.id) is None and sessions.find("t", found.id) is found
    return found
