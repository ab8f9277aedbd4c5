"""Synthetic dumps for the tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.diagnose.flight_recorder.analyse import Analysis, analyse
from minder.diagnose.flight_recorder.dumpfile import parse_dump
from minder.diagnose.flight_recorder.folder import collect
from minder.diagnose.flight_recorder.records import Collection, Signatures

sys.path.insert(0, str(Path(__file__).parent))

DATA = Path(__file__).parent / "data"


@pytest.fixture
def data() -> Path:
    return DATA


def collection_of(documents: dict[int, dict[str, Any]]) -> Collection:
    signatures = Signatures()
    return collect([parse_dump(item, rank, signatures) for rank, item in documents.items()], signatures)


@pytest.fixture
def judge() -> Callable[[dict[int, dict[str, Any]]], Analysis]:
    """Documents by rank to the analysis of them."""
    return lambda documents: analyse(collection_of(documents))


@pytest.fixture
def build() -> Callable[..., dict[str, Any]]:
    """A small dump written by hand: build([entry, ...], group="0", ranks=[...])."""
    return build_dump


def build_dump(entries: list[dict[str, Any]], ranks: int = 4, **more: Any) -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    return {
        "version": "2.9",
        "pg_config": config,
        "pg_status": {},
        "entries": [entry_of(k, item) for k, item in enumerate(entries)],
        **more,
    }


def entry_of(record: int, item: dict[str, Any]) -> dict[str, Any]:
    done = item.get("done", True)
    created = 1_760_000_000_000_000_000 + record * 10_000_000
    shape = item.get("sizes", [[8]])
    basic = {
        "record_id": record, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": record + 1, "p2p_seq_id": 0,
        "profiling_name": "nccl:all_reduce", "input_sizes": shape, "output_sizes": shape,
        "input_dtypes": ["Float"], "output_dtypes": ["Float"], "state": "completed" if done else "scheduled",
        "retired": done, "time_created_ns": created,
        "time_discovered_completed_ns": created + 1_000_000 if done else None, "is_p2p": False,
    }  # fmt: skip
    return {**basic, **{key: value for key, value in item.items() if key not in ("done", "sizes")}}
