"""Bit-wise alignment: one fixed training step, hashed tensor by tensor. Machines that are equal must print equal hashes, to the last bit.

    python -m minder.edge.probes.alignment --json [--options '{"size": "cpu"}']

Published for ByteRobust, whose test instantiates a model like the job on each machine and compares the outputs. The step runs more than
once: a machine whose own repetitions differ has failed without any other. Everything else is a comparison, and is judged elsewhere
(minder.diagnose.diagnostics.alignment).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minder.edge.probes.contract import Finding, Probe
from minder.edge.probes.program import run
from minder.model.probes import Measurement

if TYPE_CHECKING:
    from minder.edge.probes.alignment_model import ReferenceStep, Row

__all__ = ["PROBE", "be_deterministic", "main", "measure"]

PROBE = Probe(
    name="alignment",
    version=1,
    says="one training step of a small model, equal to the last bit on equal machines",
    limit_s=120.0,
    needs=("torch",),
    measures={"alignment_step": "seconds of one step; not judged"},
    source="ByteRobust's bit-wise alignment test (SOSP 2025)",
)
LAYOUTS = ("dense", "experts")

_SHARDS = 8
_REPEATS = 2

MakeStep = Callable[..., "ReferenceStep"]


def measure(options: Mapping[str, Any], make_step: MakeStep | None = None) -> Finding:
    """options: size ("tiny", "cpu", "gpu"), repeats. make_step: what runs
    instead of ReferenceStep, in tests. data: "digest" of everything, "devices" by coordinate, and "tensors": [coordinate, tensor, SHA-256]
    in the order of execution."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA begins: cuBLAS is deterministic with it only
    try:
        import torch

        from minder.edge.probes import alignment_model as model
    except ImportError:
        return Finding("not_applicable", "torch is not installed")
    gpus = min(_SHARDS, torch.cuda.device_count()) if torch.cuda.is_available() else 0
    devices = [f"cuda:{index}" for index in range(gpus)] or ["cpu"]
    size = str(options.get("size", "gpu" if gpus else "cpu"))
    dtype = torch.bfloat16 if gpus else torch.float32
    be_deterministic()
    begun = time.monotonic()
    runs = [_run(make_step or model.ReferenceStep, model.SIZES[size], devices, dtype) for _ in range(int(options.get("repeats", _REPEATS)))]
    seconds = round((time.monotonic() - begun) / len(runs), 3)
    rows, wrong = runs[0], _first_difference(runs)
    facts = {"size": size, "dtype": str(dtype).removeprefix("torch."), "model": _sha256(Path(model.__file__)), **_hardware(gpus)}
    data = {"digest": _digest(rows), "devices": _devices(devices), "tensors": [list(row) for row in rows]}
    measures = (Measurement("alignment_step", seconds, "s", "none"),)
    detail = f"two runs of one step differ first at {wrong[0]}: {wrong[1]}" if wrong else ""
    return Finding("failed" if wrong else "measured", detail, measures, facts, data | ({"first": list(wrong)} if wrong else {}))


def _run(make_step: MakeStep, size: Any, devices: list[str], dtype: Any) -> list[Row]:
    return [row for layout in LAYOUTS for row in make_step(layout, size, devices, dtype).run()]


def be_deterministic() -> None:
    """One thread, since the number of threads decides in which order sums are taken; no kernel that is free in its order."""
    import torch

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False


def _first_difference(runs: Sequence[Sequence[Row]]) -> Row | None:
    """Of the runs of this machine; None if all are equal."""
    return next((row for row, *others in zip(*runs, strict=True) if any(other != row for other in others)), None)


def _digest(rows: Sequence[Row]) -> str:
    return hashlib.sha256(json.dumps([list(row) for row in rows]).encode()).hexdigest()


def _devices(devices: list[str]) -> dict[str, str]:
    """Which device each coordinate was on, where there is more than the processor."""
    from minder.edge.probes import alignment_model as model

    if devices == ["cpu"]:
        return {}
    places = {layout: model.ReferenceStep(layout, model.SIZES["tiny"], devices).devices for layout in LAYOUTS}
    return {model.coordinate_name(layout, at): device for layout, found in places.items() for at, device in found.items()}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _hardware(gpus: int) -> dict[str, str]:
    """What must be equal for two machines to compute the same bits."""
    import torch

    facts = {"torch": torch.__version__, "processor": _processor(), "instructions": torch.backends.cpu.get_cpu_capability()}
    if gpus:
        facts |= {"gpu": torch.cuda.get_device_name(0), "gpus": str(gpus), "cuda": str(torch.version.cuda), "driver": _driver()}
        facts["cudnn"] = str(torch.backends.cudnn.version())
    return facts


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _driver() -> str:
    try:
        return Path("/proc/driver/nvidia/version").read_text(errors="replace").splitlines()[0].strip()
    except (OSError, IndexError):
        return "unknown"


def main(arguments: Sequence[str] | None = None, make_step: MakeStep | None = None) -> None:
    run(PROBE, lambda options: measure(options, make_step), arguments)


if __name__ == "__main__":
    main()
