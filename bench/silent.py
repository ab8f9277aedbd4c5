"""Machines that compute wrongly and say nothing of it, found by their probes: `python bench/silent.py [--seeds 5]`. Needs torch.

Three machines of the lab with an agent each. One flips the lowest bit of one value of each gelu, another one has one wrong element in each
large matrix product (bench/corrupt_lab); the seed says which machines, and where. All three are tested at once by `gemm` and bit-wise
alignment, as `minder machine test` does it, and judged beside each other. A line for each seed. The same in a job whose ladder orders the
tests: `python bench/diagnosis.py --cases bit-flip,wrong-product`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from minder.app.probing import ask_machines, judge_all
from minder.model.probes import ProbeJudgement
from minder.simulate.lab.lab import Lab
from minder.simulate.lab.machine import LabMachine
from minder.wire.client import Endpoint, MachineEndpoints
from minder.wire.tokens import read_token, write_token

MACHINES, PORT = 3, 9401
PROBES = {"bit-flip": "alignment", "wrong-product": "gemm"}  # each fault, and what shows it
_CORRUPT = Path(__file__).with_name("corrupt_lab")
_START_S = 120.0


def play(folder: Path, seed: int) -> dict[str, object]:
    """faulty: fault to the machine's place; failed: probe to the places that it fails on; not_judged: how many answers say nothing."""
    faulty = {kind: (seed + place) % MACHINES for place, kind in enumerate(PROBES)}
    token_file, load = folder / "token", os.getloadavg()[0]
    write_token(token_file)
    with Lab(MACHINES, 0, root_dir=folder / "machines") as lab:
        for machine in lab.machines:
            kind = next((kind for kind, place in faulty.items() if place == machine.place.index), None)
            lab.start_agent(machine, token_file, PORT, ["--gpu", "off"], None if kind is None else _broken(kind, seed))
        _await(lab.machines)
        token, begun = read_token(token_file), time.monotonic()
        asked = [MachineEndpoints(item.name, Endpoint(f"http://{item.address}:{PORT}", token), None) for item in lab.machines]
        judged = judge_all(ask_machines(asked, ("gemm", "alignment")), ())
        places = {item.name: item.place.index for item in lab.machines}
    failed = {probe: [places[name] for name, items in judged.items() if (probe, "fail") in _words(items)] for probe in PROBES.values()}
    silent = sum((probe, "not_judged") in _words(items) for items in judged.values() for probe in PROBES.values())
    right = failed == {PROBES[kind]: [place] for kind, place in faulty.items()}
    seconds, loads = round(time.monotonic() - begun, 1), round(load, 1)
    return {"seed": seed, "faulty": faulty, "failed": failed, "not_judged": silent, "right": right, "seconds": seconds, "load": loads}


def _words(items: Sequence[ProbeJudgement]) -> set[tuple[str, str]]:
    return {(item.probe, item.verdict) for item in items}


def _broken(kind: str, seed: int) -> dict[str, str]:
    """What the agent's environment holds on top."""
    path = os.pathsep.join(filter(None, (str(_CORRUPT), os.environ.get("PYTHONPATH"), str(Path(__file__).parents[1]))))
    return {"PYTHONPATH": path, "CORRUPT": kind, "CORRUPT_SEED": str(seed)}


def _await(machines: list[LabMachine]) -> None:
    end_s = time.monotonic() + _START_S
    for machine in machines:
        while True:
            try:
                socket.create_connection((machine.address, PORT), 1.0).close()
                break
            except OSError:
                if time.monotonic() > end_s:
                    raise
                time.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(play(Path(folder), seed))
        print(json.dumps(rows[-1]), flush=True)
    print(f"right: {sum(bool(row['right']) for row in rows)} of {len(rows)}")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
