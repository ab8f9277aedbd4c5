"""Recordings in which something says outright what failed, rebuilt from public reports: who is accused, and nobody else.

The telemetry is the same in all of them: eight machines that step and are sampled every five seconds, and stop after five minutes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from minder.model.evidence import Verdict
from minder.offline.evaluation.replay import replay

CASES = Path(__file__).parent / "signal_cases"
STOP = datetime(2026, 3, 2, 6, 5, tzinfo=UTC)
Recorded = Callable[..., list[Verdict]]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """Verdicts of the shared telemetry with these events, beside the steps."""

    def build(events: list[dict[str, Any]] | str, columns: Callable[[pl.DataFrame], pl.DataFrame] | None = None) -> list[Verdict]:
        folder = tmp_path / "recording"
        folder.mkdir()
        shutil.copy(CASES / "job.toml", folder / "job.toml")
        table = pl.read_parquet(CASES / "telemetry.parquet")
        (columns(table) if columns else table).write_parquet(folder / "telemetry.parquet")
        text = events if isinstance(events, str) else "".join(json.dumps(item) + "\n" for item in [*steps(), *events])
        (folder / "events.jsonl").write_text(text, encoding="utf-8")
        return list(replay(folder))

    return build


def steps() -> list[dict[str, Any]]:
    begin = STOP - timedelta(seconds=300)
    return [{"time": stamp(5 * (step - 1), begin), "kind": "step", "step": step, "loss": 2.4, "seconds": 5.0} for step in range(1, 61)]


def stamp(after_s: float, begin: datetime = STOP) -> str:
    return (begin + timedelta(seconds=after_s)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line(after_s: float, machine: str, message: str) -> dict[str, Any]:
    return {"time": stamp(after_s), "kind": "kernel", "machine": machine, "message": message}


def ended(after_s: float, machine: str, code: int | None = None, signal: int | None = None) -> dict[str, Any]:
    return {"time": stamp(after_s), "kind": "exit", "machine": machine, "rank": 3, "code": code, "signal": signal}


def accused(verdicts: list[Verdict]) -> list[tuple[str, ...]]:
    return [item.machines for item in verdicts if item.kind in ("machine", "group") and item.tier != "watch"]


@pytest.mark.parametrize("case", sorted(path.stem for path in CASES.glob("*.jsonl")))
def test_cases(case: str, recorded: Recorded) -> None:
    expected = json.loads((CASES / f"{case}.expected.json").read_text(encoding="utf-8"))
    verdicts = recorded((CASES / f"{case}.jsonl").read_text(encoding="utf-8"))
    assert set(accused(verdicts)) == {tuple(expected["accuse"])}
    tiers = [item.tier for item in verdicts if item.kind == "machine"]
    assert set(tiers) <= set(expected.get("tier", ("page", "evict")))
    assert all(item.time_s < STOP.timestamp() + 420 for item in verdicts if item.kind == "machine")


@pytest.mark.parametrize("victims_after_s", [10.0, None, *(pytest.param(late, marks=pytest.mark.release) for late in (4.0, 30.0))])
def test_the_first_deadly_exit_is_named_however_late_its_victims_end_or_hang(victims_after_s: float | None, recorded: Recorded) -> None:
    victims = [ended(victims_after_s + number / 10, f"node-000{number}", code=1) for number in (1, 2, 4, 5)] if victims_after_s else []
    verdicts = recorded([ended(0.4, "node-0003", signal=7), *victims])
    assert accused(verdicts) == [("node-0003",)]
    assert verdicts[0].tier == "page"  # a bare signal is no proof of hardware


def test_a_kernel_line_beside_the_first_deadly_exit_is_proof(recorded: Recorded) -> None:
    fault = line(0.0, "node-0003", "Memory failure: 0x3f5a1c2: Sending SIGBUS to python3:88211 due to hardware memory corruption")
    verdicts = recorded([fault, ended(0.4, "node-0003", signal=7), ended(9.0, "node-0001", code=1)])
    assert [(item.machines, item.tier) for item in verdicts if item.kind == "machine"] == [(("node-0003",), "evict")]


def test_the_same_xid_on_every_machine_accuses_none_and_the_one_that_differs(recorded: Recorded) -> None:
    text = "NVRM: Xid (PCI:0000:1b:00): {}, {} XC0 i0 Link 11 (0x0409a0c2 0x00000008)"
    everybody = [line(0.1 * number, f"node-000{number}", text.format(145, "RLW_RXPIPE Fatal")) for number in range(1, 9)]
    verdicts = recorded([*everybody, line(0.3, "node-0006", text.format(149, "NETIR_LINK_EVT Fatal"))])
    assert accused(verdicts) == [("node-0006",)]


def test_evictions_by_a_storage_server_accuse_the_storage(recorded: Recorded) -> None:
    text = "LustreError: 167-0: scratch-OST0012-osc-ffff8f1: This client was evicted by scratch-OST0012; in progress operations"
    verdicts = recorded([line(0.2 * number, f"node-000{number}", text) for number in (2, 3, 5, 7)])
    assert accused(verdicts) == []
    assert [(item.kind, item.tier) for item in verdicts[:1]] == [("job", "page")]


def test_a_job_that_stands_and_names_nobody_is_told_as_the_jobs_after_five_minutes(recorded: Recorded) -> None:
    verdicts = recorded([])
    assert [(item.kind, item.tier, item.machines) for item in verdicts] == [("job", "page", ())]
    assert 295 <= verdicts[0].time_s - STOP.timestamp() <= 320


def test_a_job_that_ended_is_not_told_to_stand(recorded: Recorded) -> None:
    assert recorded([ended(0.5, f"node-000{number}", code=0) for number in range(1, 9)]) == []


def test_a_job_whose_gpus_are_empty_is_not_told_to_stand(recorded: Recorded) -> None:
    def release(table: pl.DataFrame) -> pl.DataFrame:
        held = pl.when(pl.col("timestamp") < STOP).then(0.9).otherwise(0.01).alias("gpu_memory_used_ratio")
        return table.with_columns(held, pl.when(pl.col("timestamp") < STOP).then(pl.col("gpu_duty_cycle_ratio")).otherwise(0.0))

    assert recorded([], release) == []


def test_a_declared_phase_stands_as_long_as_it_likes(recorded: Recorded) -> None:
    assert recorded([{"time": stamp(-2), "kind": "phase", "phase": "evaluation", "state": "begin"}]) == []


def with_codes(codes: dict[str, tuple[float, float]]) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """DCGM's gauge of one GPU by machine: (before the stop, after it); 0 for the others."""

    def add(table: pl.DataFrame) -> pl.DataFrame:
        before, after = ({name: pair[at] for name, pair in codes.items()} for at in (0, 1))
        names = pl.col("machine")
        value = (
            pl.when(pl.col("timestamp") < STOP)
            .then(names.replace_strict(before, default=0.0))
            .otherwise(names.replace_strict(after, default=0.0))
        )
        return table.with_columns(value.cast(pl.Float64).alias("gpu_xid_code"))

    return add


def test_a_sticky_xid_gauge_speaks_when_it_changes(recorded: Recorded) -> None:
    verdicts = recorded([], with_codes({"node-0003": (0.0, 79.0), "node-0005": (79.0, 79.0), "node-0006": (79.0, 0.0)}))
    assert accused(verdicts) == [("node-0003",)]
    assert verdicts[0].tier == "evict"


def test_a_silent_exporter_of_a_machine_accuses_no_machine(recorded: Recorded) -> None:
    def silence(table: pl.DataFrame) -> pl.DataFrame:
        down = (pl.col("machine") == "node-0004") & (pl.col("timestamp") > STOP - timedelta(seconds=100))
        return table.with_columns(pl.when(down).then(0.0).otherwise(1.0).alias("scrape_up"))

    assert accused(recorded([], silence)) == []
