"""Which probe finds which fault, and which pass: `python bench/probe_faults.py [--probes gemm,disk] [--faults "full disk"]`. Needs root.

Each fault is real and is a machine's: a cgroup that leaves a tenth of a processor, a file system without space, a clock 30 s ahead (a
preloaded library, for these processes only), a library whose gelu flips the lowest bit of one value. Every probe runs as a process of its
own on the healthy machine (three times: the machine's past, and its equals) and under each fault. The faults of links are found by pair
tests, in tests/simulate/lab/test_pairs.py. A row per fault: what each probe says.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from minder.diagnose.diagnostics.judgement import judge
from minder.edge.probes.contract import Program, find_programs
from minder.edge.probes.runner import run_probe
from minder.model.probes import ProbeJudgement, ProbeResult
from minder.simulate.lab.disk_faults import slow_down

__all__ = ["FAULTS", "healthy_runs", "judged_under"]

PROBES = ("clock", "memory", "loopback", "gemm", "disk", "alignment")
_OPTIONS: dict[str, dict[str, Any]] = {
    "memory": {"seconds": 1.0}, "gemm": {"seconds": 1.0}, "disk": {"size_bytes": 32 << 20}, "alignment": {"size": "tiny"},
}  # fmt: skip
_CPU = Path("/sys/fs/cgroup/cpu") if Path("/sys/fs/cgroup/cpu").exists() else Path("/sys/fs/cgroup")
_AHEAD_S = 30
_SHIM = f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <sys/time.h>
int clock_gettime(clockid_t id, struct timespec *now) {{
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int answer = real(id, now);
  if (id == CLOCK_REALTIME) now->tv_sec += {_AHEAD_S};
  return answer;
}}
"""
_FLIP = """
import torch
import torch.nn.functional as functional
whole = functional.gelu
def flipped(*arguments, **named):
    found = whole(*arguments, **named)
    if found.dtype == torch.float32:
        found.data.view(-1).view(torch.int32)[7] ^= 1
    return found
functional.gelu = flipped
"""


@dataclass(frozen=True)
class Condition:
    """What a faulty machine's probes run under. before: Python that runs in the probe's process first; with_torch: only where torch is
    needed. environment: of that process. folder: where `disk` writes; equal: another of the same kind, where it writes unhindered."""

    before: str = ""
    with_torch: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    equal: str | None = None


@contextlib.contextmanager
def throttled(folder: Path) -> Iterator[Condition]:
    """A tenth of one processor."""
    group = _CPU / f"minder-probe-faults-{os.getpid()}"
    group.mkdir()
    try:
        if (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text("10000")
        else:
            (group / "cpu.max").write_text("10000 100000")
        yield Condition(before=f"import os\nopen({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n")
    finally:
        group.rmdir()


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[Condition]:
    place = folder / "full"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "probe", str(place)], check=True)
    try:
        (place / "filler").write_bytes(bytes(12 << 20))
        yield Condition(folder=str(place))
    finally:
        subprocess.run(["umount", str(place)], check=True)


@contextlib.contextmanager
def slow_disk(folder: Path) -> Iterator[Condition]:
    """5 MB/s, and 50 ms a sync, beside one of the same kind at full speed."""
    place, equal = folder / "slow", folder / "fast"
    with contextlib.ExitStack() as mounts:
        for each, rate, fsync_s in ((place, 5e6, 0.05), (equal, 1e12, 0.0)):
            each.mkdir()
            mounts.callback(slow_down(each, f"minder-probe-faults-{os.getpid()}", rate, fsync_s, {}))
        yield Condition(folder=str(place), equal=str(equal))


@contextlib.contextmanager
def wrong_clock(folder: Path) -> Iterator[Condition]:
    source, library = folder / "ahead.c", folder / "ahead.so"
    source.write_text(_SHIM)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    yield Condition(environment={"LD_PRELOAD": str(library)})


@contextlib.contextmanager
def flipped_bit(folder: Path) -> Iterator[Condition]:
    yield Condition(with_torch=_FLIP)


FAULTS = {
    "throttled processor": throttled, "full disk": full_disk, "slow disk": slow_disk, "clock 30 s ahead": wrong_clock,
    "flipped bit": flipped_bit,
}  # fmt: skip


def run_under(condition: Condition, names: tuple[str, ...], folder: Path) -> dict[str, ProbeResult]:
    """Each probe by itself, under the condition."""
    return {name: _run(program, condition, folder) for name, program in find_programs(names).items()}


def healthy_runs(names: tuple[str, ...], folder: Path, count: int = 3) -> list[dict[str, ProbeResult]]:
    return [run_under(Condition(), names, folder) for _ in range(count)]


def judged_under(
    condition: Condition, healthy: list[dict[str, ProbeResult]], names: tuple[str, ...], folder: Path
) -> dict[str, ProbeJudgement]:
    """Probe to verdict on a machine that the healthy runs are the past of, among machines that are as healthy."""
    if condition.equal is not None:
        disks = [run_under(Condition(folder=condition.equal), ("disk",), folder) for _ in healthy]
        healthy = [{**run, **disk} for run, disk in zip(healthy, disks, strict=True)]
    found = run_under(condition, names, folder)
    judged = {}
    for name, result in found.items():
        past = [replace(run[name], started_s=result.started_s - 60.0 * (index + 1)) for index, run in enumerate(healthy)]
        equals = {f"m{index}": replace(past[index % len(past)], started_s=result.started_s) for index in range(4)}
        judged[name] = judge({"faulty": result, **equals}, {"faulty": past[::-1]})["faulty"]
    return judged


def _run(program: Program, condition: Condition, folder: Path) -> ProbeResult:
    name, path = program.probe.name, program.path
    text = condition.before + (condition.with_torch if "torch" in program.probe.needs else "")
    settings = "".join(f"os.environ[{key!r}] = {value!r}\n" for key, value in condition.environment.items())
    if settings:  # a library is preloaded by the next program only
        text += f"import os, sys\n{settings}os.execv(sys.executable, [sys.executable, '-P', {str(path)!r}, *sys.argv[1:]])\n"
    elif text:
        text += f"import runpy\nrunpy.run_path({str(path)!r}, run_name='__main__')\n"
    wrapper = folder / f"{name}.py"
    wrapper.write_text(text)
    chosen = Program(program.probe, wrapper) if text else program
    options = {"folder": condition.folder or str(folder), **_OPTIONS.get(name, {}), **_clock(condition)}
    return asyncio.run(run_probe(chosen, options))


def _clock(condition: Condition) -> dict[str, float]:
    """The order's time, and that of the machine when it came: of a process under the condition, as its agent would be."""
    code = "import time; print(time.time())"
    sent_s = time.time()
    command = [sys.executable, "-I", "-S", "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **condition.environment}).stdout
    return {"controller_time_s": sent_s, "received_s": float(said), "round_trip_s": time.time() - sent_s}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--probes", default=",".join(PROBES))
    parser.add_argument("--faults", default=",".join(FAULTS))
    given = parser.parse_args()
    names = tuple(given.probes.split(","))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        healthy = healthy_runs(names, folder)
        print(f"| fault | {' | '.join(names)} |\n|---|{'---|' * len(names)}", flush=True)
        for fault in given.faults.split(","):
            with FAULTS[fault](folder) as condition:
                judged = judged_under(condition, healthy, names, folder)
            print(f"| {fault} | {' | '.join(judged[name].verdict.replace('_', ' ') for name in names)} |", flush=True)
            for item in judged.values():
                if item.verdict != "pass":
                    print(f"  {item.probe}: {item.reason}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
