"""Chrome traces as torch.profiler exports them: labels become operations."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from minder.diagnose.step_traces.kineto import read_kineto
from minder.model.errors import TraceError


def event(name: str, ts: float, dur: float, cat: str = "user_annotation") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 1, "args": {}}


def export(path: Path, *events: dict[str, Any]) -> Path:
    content = {
        "distributedInfo": {"backend": "gloo", "rank": 6, "world_size": 8},
        "baseTimeNanoseconds": 1_000_000_000,
        "traceEvents": events,
    }
    text = json.dumps(content).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


PLACE = event("minder|dp=1|pp=2", 0.0, 1.0)
STEP = event("ProfilerStep#40", 0.0, 900.0)


@pytest.mark.parametrize("name", ["rank6.json", "rank6.json.gz"])
def test_labels_become_operations(tmp_path: Path, name: str) -> None:
    other = event("aten::mm", 150.0, 10.0, "cpu_op")
    (row,) = read_kineto(export(tmp_path / name, PLACE, STEP, event("forward-compute|mb=3|mc=0", 100.0, 250.0), other))
    assert row == {
        "dp_rank": 1, "stage": 2, "rank": 6, "step": 40, "optype": "forward-compute", "mc": 0, "mb_id": 3, "gmc": -1,
        "start_ts": pytest.approx(1.0001), "duration": pytest.approx(0.00025),
    }  # fmt: skip


def test_the_range_on_the_gpu_counts_where_there_is_one(tmp_path: Path) -> None:
    label = "forward-compute|mb=0|mc=0"
    events = (PLACE, STEP, event(label, 100.0, 20.0), event(label, 130.0, 400.0, "gpu_user_annotation"))
    (row,) = read_kineto(export(tmp_path / "rank6.json", *events))
    assert row["duration"] == pytest.approx(0.0004)


def test_a_label_without_a_place_and_a_file_cut_off_are_clear(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="lacks step, dp, pp"):
        list(read_kineto(export(tmp_path / "nowhere.json", STEP, event("forward-compute|mb=0", 1.0, 1.0))))
    for name in ("cut.json", "cut.json.gz"):
        whole = export(tmp_path / name, PLACE).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(TraceError, match=r"no readable torch\.profiler trace"):
            list(read_kineto(tmp_path / name))
