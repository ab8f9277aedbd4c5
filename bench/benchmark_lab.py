"""Recordings of real faults for datasets/benchmark/cases: python bench/benchmark_lab.py [--faults hang,none] [--seed 40] [--first 1]

Each is a lab of six machines (real processes, one training job) watched by a controller in a dry run, so that nothing is evicted and
the fault stays. The injector's fingerprints are hidden from the agents. What a recording keeps is what docs/recordings.md has for anybody:
job.toml, telemetry.parquet, ranks.json, and events that are no word of minder's own. Takes three minutes each; faults of a link need
network namespaces.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

from minder.act.controller.reporting.status import read_status
from minder.model.clock import format_time
from minder.model.private import open_private
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.stage import Stage

CASES = Path(__file__).resolve().parents[1] / "datasets/benchmark/cases"
FAULTS = "hang,slow-link,crash,slow-cpu,dead-link,oom,machine-lost,none"
HEALTHY_S, FAULTY_S = 60.0, 75.0
ANYBODYS = frozenset({"kernel", "xid", "link", "exit", "log", "step", "phase", "membership"})


class DryStage(Stage):
    """The demo's stage, whose controller decides and does nothing."""

    def start_controller(self) -> None:
        command = [sys.executable, "-m", "minder", "run", "--config", str(self.folder / "job.toml")]
        with open_private(self.folder / "controller.log", "ab") as log:
            self._controller = subprocess.Popen(
                command, env=os.environ | self.lab.mark, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def stop_controller(self) -> None:
        """With time to write the recording, on a busy host too."""
        if self._controller is not None and self._controller.poll() is None:
            self._controller.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._controller.wait(120.0)
        super().stop_controller()


def play(fault: str, machine: int, seed: int, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The recording of one fault, and its truth."""
    options = DemoOptions(fault, folder / "run", 60, machine, seed, steps=100_000, masked=True, record=folder / "recording")
    with DryStage(options) as stage:
        stage.start_controller()
        wait(lambda: int((read_status(stage.status_path) or {}).get("step") or 0) >= 5, 600.0)
        time.sleep(HEALTHY_S)
        injected = None if fault == "none" else stage.inject(fault, machine)
        time.sleep(FAULTY_S)
        stage.stop_controller()
        truth: dict[str, Any] = {"part": "lab"}
        if injected is not None:
            truth |= {"fault": fault, "names": [stage.target.name], "onset": format_time(injected.time_s)}
    return folder / "recording", truth


def wait(reached: Any, limit_s: float) -> None:
    end_s = time.monotonic() + limit_s
    while not reached():
        if time.monotonic() > end_s:
            raise SystemExit("the job took no step: see controller.log")
        time.sleep(0.5)


def pack(recording: Path, name: str, truth: dict[str, Any]) -> None:
    """The parts that anybody may write, as one file, and the truth beside the others."""
    table = pl.read_parquet(recording / "telemetry.parquet")
    seconds = (table["timestamp"].max() - table["timestamp"].min()).total_seconds()  # type: ignore[operator,union-attr]
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch)
        table.write_parquet(copy / "telemetry.parquet", compression="zstd", compression_level=19, statistics=False)
        for part in ("job.toml", "ranks.json"):
            shutil.copyfile(recording / part, copy / part)
        lines = (recording / "events.jsonl").read_text(encoding="utf-8").splitlines() if (recording / "events.jsonl").exists() else []
        kept = [line for line in lines if line.strip() and json.loads(line)["kind"] in ANYBODYS]
        (copy / "events.jsonl").write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        with tarfile.open(CASES / f"{name}.tar.xz", "w:xz") as packed:
            for path in sorted(copy.iterdir()):
                add(packed, path)
    file = CASES / "answers.json"
    answers = json.loads(file.read_text(encoding="utf-8"))
    answers[name] = {
        **truth,
        "seconds": round(seconds, 1),
        "from": "bench/benchmark_lab.py: real processes of one machine",
        "licence": "CC BY 4.0",
    }
    file.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def add(packed: tarfile.TarFile, path: Path) -> None:
    """Without owner and time."""
    entry = tarfile.TarInfo(path.name)
    entry.size = path.stat().st_size
    packed.addfile(entry, io.BytesIO(path.read_bytes()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", default=FAULTS)
    parser.add_argument("--seed", type=int, default=40)
    parser.add_argument("--first", type=int, default=1, help="number of the first recording")
    given = parser.parse_args()
    for number, fault in enumerate(given.faults.split(","), start=given.first):
        with tempfile.TemporaryDirectory(prefix="benchmark-lab-") as scratch:
            recording, truth = play(fault, (2 * number) % 6, given.seed + number, Path(scratch))
            pack(recording, f"lab-{number:02d}", truth)
            print(number, fault, truth, flush=True)


if __name__ == "__main__":
    main()
