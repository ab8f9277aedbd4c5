"""How much telemetry the API scores: python bench/scoring.py [--rounds 3]

`POST /v1/scores` with Parquet of simulated jobs of several sizes, by one sender and then by two at once.
Seconds from sending to the whole answer.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import polars as pl
from load import HOST, METRICS, serving

SIZES = ((8, 900), (64, 900), (500, 300), (1500, 120))  # machines, rows at 1 Hz


def telemetry(machines: int, rows: int) -> bytes:
    """A job that runs well, ten metrics a machine."""
    rng, begun = np.random.default_rng(0), datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
    times = [begun + timedelta(seconds=row) for row in range(rows)]
    columns: dict[str, object] = {
        "timestamp": np.repeat(np.array([moment.replace(tzinfo=None) for moment in times], dtype="datetime64[ms]"), machines),
        "machine": [f"m{index:04d}" for index in range(machines)] * rows,
    }
    columns |= {
        name: (usual * (1 + 0.01 * rng.standard_normal(machines * rows))).clip(0, 1.0 if name.endswith("_ratio") else None)
        for name, usual in (METRICS | HOST).items()
    }
    buffer = io.BytesIO()
    pl.DataFrame(columns).with_columns(pl.col("timestamp").dt.replace_time_zone("UTC")).write_parquet(buffer)
    return buffer.getvalue()


def send(url: str, token: str, body: bytes) -> float:
    begun_s = time.perf_counter()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/vnd.apache.parquet"}
    answer = httpx.post(f"{url}/v1/scores?name=bench", content=body, headers=headers, timeout=120.0)
    answer.raise_for_status()
    return time.perf_counter() - begun_s


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, serving(Path(temporary) / "ledger.db", "operator") as (_, url, token):
        for machines, rows in SIZES:
            body = telemetry(machines, rows)
            send(url, token, body)  # the scoring process has to start
            alone = [send(url, token, body) for _ in range(given.rounds)]
            begun_s = time.perf_counter()
            with ThreadPoolExecutor(2) as threads:
                list(threads.map(send, *zip(*[(url, token, body)] * (2 * given.rounds), strict=True)))
            both_s = (time.perf_counter() - begun_s) / (2 * given.rounds)
            one_s = statistics.median(alone)
            row = {"machines": machines, "rows": rows, "MiB": round(len(body) / 2**20, 1), "one_s": round(one_s, 2)}
            row |= {"two_senders_s_each": round(both_s, 2), "machine_rows_per_s": round(machines * rows / min(both_s, one_s))}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
