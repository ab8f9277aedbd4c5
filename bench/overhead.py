"""What everything that is always on costs a real training job, against the same job without it, in one run.

    python bench/overhead.py [--seconds 120] [--steps 20] [--format json]

Two ranks train a small network over gloo (DDP) under a real launcher, beside a real agent that is scraped every second. In the job
(bench/jobs/counted.py) short blocks of steps with minder and without alternate. Compared is a step's processor time, all threads of the
process together, and of it the fastest quarter: other load on the machine only ever adds, and what minder does in every step moves the
quick steps too. The 95 % interval is over resampled pairs of blocks (bootstrap); beside it the bare loop against itself, which should hold
zero. What comes now and then instead (a dump every ten seconds, a tick four times a second, a traced step's line in its file) is counted by
the processor time of its own thread, in a stretch of steps in which it is not parked (parking it for the bare blocks wakes it once for each
of them); agent and launcher by that of their processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from agent_overhead import cpu_seconds, post, scrape, start_agent

RANKS, GOAL_PERCENT = 2, 1.0
QUICK = 0.25
THREADS = {"tracer": "thread that writes traced steps", "control": "control channel's thread", "dumps": "thread that keeps dumps"}


def start_launcher(folder: Path, options: argparse.Namespace, stack: ExitStack) -> tuple[subprocess.Popen[str], str]:
    """The launcher's process and its address."""
    script = [str(Path(__file__).parent / "jobs" / "counted.py"), "--output", str(folder)]
    script += ["--seconds", str(options.seconds), "--steps", str(options.steps)]
    command = [sys.executable, "-m", "minder", "launch", "--job", "counted", "--machine", "m1", "--listen", "127.0.0.1:0"]
    command += ["--slots", str(RANKS), "--barrier", "script", "--run-dir", str(folder), "--", *script]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    stack.callback(launcher.wait)
    stack.callback(launcher.terminate)
    assert launcher.stdout is not None
    return launcher, "http://" + launcher.stdout.readline().rsplit(" at ", 1)[1].strip()


def start_ranks(url: str, stack: ExitStack) -> None:
    """The place of each rank, as a controller gives it."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, RANKS, is_master=True, wait_for_workers=False)
    stack.callback(lambda: store)
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS)}
    common |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "counted", "GROUP_RANK": "0", "MINDER_GENERATION": "1"}
    places = [{"slot": rank, "env": common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}} for rank in range(RANKS)]
    body = {"operation_id": "counted", "generation": 1, "desired": "run", "grace_s": 5.0, "world_size": RANKS, "assignments": places}
    post(url + "/v1/workers", body)


def measure(options: argparse.Namespace, folder: Path, stack: ExitStack) -> dict[str, Any]:
    launcher, launcher_url = start_launcher(folder, options, stack)
    agent, agent_url = start_agent(folder, False, stack)
    start_ranks(launcher_url, stack)
    counted = {"agent": agent.pid, "launcher": launcher.pid}
    _sleep_while(lambda: not list((folder / "traces").glob("*")), launcher, 120.0)
    spent = {"agent": cpu_seconds, "launcher": alone_seconds}
    began_s, before = time.monotonic(), {name: spent[name](pid) for name, pid in counted.items()}
    while len(list(folder.glob("rank-*.json"))) < RANKS and launcher.poll() is None:
        scrape(agent_url)
        scrape_state(launcher_url)
        time.sleep(1.0)
    seconds = time.monotonic() - began_s
    shares = {name: 100.0 * (spent[name](pid) - before[name]) / seconds for name, pid in counted.items()}
    ranks = [json.loads(file.read_text()) for file in sorted(folder.glob("rank-*.json"))]
    return summary(ranks) | {f"{name}_percent_of_a_core": share for name, share in shares.items()} | {"load": os.getloadavg()[0]}


def alone_seconds(pid: int) -> float:
    """Without the children that it has waited for: a launcher's are the ranks."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def scrape_state(url: str) -> None:
    """What a controller asks a launcher every second."""
    import urllib.request

    with urllib.request.urlopen(url + "/v1/state", timeout=5) as answer:
        answer.read()


def _sleep_while(waits: Any, launcher: subprocess.Popen[str], limit_s: float) -> None:
    end_s = time.monotonic() + limit_s
    while waits():
        if launcher.poll() is not None or time.monotonic() > end_s:
            raise SystemExit("the job did not start")
        time.sleep(0.2)


def summary(ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Percent of a step's processor time, or of a core."""
    pairs = [pair for rank in ranks for pair in rank["pairs"]]
    bare = [block["cpu_s"] for pair in pairs for block in pair if block["kind"] == "bare"]
    step_s = float(np.quantile(np.concatenate(bare), QUICK))
    own_s = {name: sum(rank["threads_s"][name] for rank in ranks) for name in ranks[0]["threads_s"]}
    steps, wall_s = sum(rank["steps"] for rank in ranks), sum(rank["wall_s"] for rank in ranks)
    return {
        "step_ms": 1e3 * step_s,
        "loop": difference(pairs, "minder"),
        "nothing": difference(pairs, "bare again"),
        "tracer_percent": 100.0 * own_s["minder-tracer"] / steps / step_s,  # by traced steps; the other two go by the clock
        "control_percent": 100.0 * own_s["minder-control"] / wall_s,
        "dumps_percent": 100.0 * own_s["minder-dumps"] / wall_s,
    }


def difference(pairs: Sequence[Sequence[dict[str, Any]]], kind: str) -> dict[str, float]:
    """Of the pairs that hold this kind: how much longer its quick steps are, a tenth of them traced, and the 95 % interval of that."""
    chosen = [{block["kind"]: block for block in pair} for pair in pairs if any(block["kind"] == kind for block in pair)]
    bare_PS = np.array([pair["bare"]["cpu_s"] for pair in chosen])
    with_PS, traced_PS = (np.array([pair[kind][name] for pair in chosen]) for name in ("cpu_s", "traced"))

    def percent(rows_P: np.ndarray) -> float:
        steps, traced = with_PS[rows_P], traced_PS[rows_P]
        share, bare = traced.mean(), np.quantile(bare_PS[rows_P], QUICK)
        long = (1 - share) * np.quantile(steps[~traced], QUICK) + (share * np.quantile(steps[traced], QUICK) if share else 0.0)
        return float(100.0 * (long - bare) / bare)

    random = np.random.default_rng(0)
    low, high = np.quantile([percent(random.integers(0, len(chosen), len(chosen))) for _ in range(1000)], [0.025, 0.975])
    return {"pairs": len(chosen), "percent": percent(np.arange(len(chosen))), "low": float(low), "high": float(high)}


def show(result: dict[str, Any]) -> str:
    def line(what: str, found: dict[str, float]) -> str:
        return f"| {what} | {found['percent']:+.2f} % ({found['low']:+.2f} to {found['high']:+.2f}), {found['pairs']} pairs |"

    rows = ["| what | share of a step's processor time |", "|---|---|", line("heartbeat and tracer, in the loop", result["loop"])]
    rows.append(line("the bare loop against itself", result["nothing"]))
    for name, what in THREADS.items():
        rows.append(f"| {what} | {result[f'{name}_percent']:.2f} % |")
    rows.append(f"| all of it in a rank | {total(result, 'percent'):.2f} % ({total(result, 'low'):.2f} to {total(result, 'high'):.2f}) |")
    rows += [f"| {name}: its own process | {result[f'{name}_percent_of_a_core']:.2f} % of a core |" for name in ("agent", "launcher")]
    each_us = 10.0 * total(result, "percent") * result["step_ms"]
    return "\n".join([*rows, f"a step takes {result['step_ms']:.2f} ms, minder {each_us:.0f} us of it; load average {result['load']:.1f}"])


def total(result: dict[str, Any], which: str) -> float:
    return float(result["loop"][which] + sum(result[f"{name}_percent"] for name in THREADS))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--steps", type=int, default=20, help="of a block")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    with ExitStack() as stack:
        result = measure(options, Path(stack.enter_context(tempfile.TemporaryDirectory())), stack)
    print(json.dumps(result) if options.format == "json" else show(result))
    return 0 if total(result, "high") < GOAL_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
