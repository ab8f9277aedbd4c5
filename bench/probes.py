"""How long probes take: each alone on this machine, and all of them on N agents at once: `python bench/probes.py [--agents N]`.

The agents are real processes on this host, each with a token and a folder of its own; they share its processors, so that N agents here
are slower than N machines. A row per probe: seconds alone, seconds on the agents (median and longest), the state, and the verdicts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from minder.app.probing import ProbedMachine, ask_machines, chosen_probes, judge_all, run_here
from minder.wire.client import Endpoint, MachineEndpoints
from minder.wire.tokens import read_token, write_token

_START_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--agents", type=int, default=2, help="agents that are asked at once; 0 for none")
    parser.add_argument("--probes", default=None, help="some of them, comma separated")
    options = parser.parse_args()
    names = chosen_probes(options.probes)
    alone = run_here(names)
    begun = time.monotonic()
    with _agents(options.agents) as endpoints:
        started_s = time.monotonic() - begun
        begun = time.monotonic()
        together = ask_machines(endpoints, names)
        whole_s = time.monotonic() - begun
    _print(alone, together)
    print(f"\n{len(together)} agents up in {started_s:.1f} s; all probes on all of them in {whole_s:.1f} s; {os.cpu_count()} processors")


@contextlib.contextmanager
def _agents(count: int) -> Iterator[list[MachineEndpoints]]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        found = [_start(Path(folder) / f"m{index}", f"m{index}", stack) for index in range(count)]
        for item in found:
            _await(item)
        yield found


def _start(folder: Path, name: str, stack: contextlib.ExitStack) -> MachineEndpoints:
    folder.mkdir()
    write_token(folder / "token")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "minder", "agent", "--machine", name, "--listen", f"127.0.0.1:{port}"]
    command += ["--token-file", str(folder / "token"), "--run-dir", str(folder / "run"), "--probe-folder", str(folder)]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(child.wait)
    stack.callback(child.terminate)
    return MachineEndpoints(name, Endpoint(f"http://127.0.0.1:{port}", read_token(folder / "token")), None)


def _await(item: MachineEndpoints) -> None:
    assert item.agent is not None
    host, _, port = item.agent.url.removeprefix("http://").partition(":")
    end_s = time.monotonic() + _START_S
    while time.monotonic() < end_s:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1.0):
            return
        time.sleep(0.05)
    raise SystemExit(f"the agent of {item.machine} did not listen within {_START_S:.0f} s")


def _print(alone: ProbedMachine, together: dict[str, ProbedMachine]) -> None:
    judged = judge_all(together, ())
    print("| probe | alone, s | on the agents, s (median, longest) | state | verdicts |")
    print("|---|---|---|---|---|")
    for result in alone.results:
        took = [other.seconds for item in together.values() for other in item.results if other.probe == result.probe]
        verdicts = Counter(item.verdict.replace("_", " ") for items in judged.values() for item in items if item.probe == result.probe)
        shown = f"{statistics.median(took):.1f}, {max(took):.1f}" if took else "-"
        said = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()) or "-"
        print(f"| {result.probe} | {result.seconds:.1f} | {shown} | {result.state.replace('_', ' ')} | {said} |")
    for machine, item in together.items():
        if item.refused:
            print(f"{machine}: {item.refused}")


if __name__ == "__main__":
    main()
