"""Matrix products on each GPU, or on the processors: are they right, and how fast are they.

The factors are small whole numbers, which TF32 holds exactly too, so every sum is exact in single precision, with or without tensor
cores: a right product has no rounding to hide behind. What the product must be is known without it: its row and column sums, weighted, come
from matrix-vector products in 64-bit integers (the checksums of algorithm-based fault tolerance, Huang and Abraham 1984). A wrong element
shows in its row and its column.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from minder.edge.probes.contract import Finding, Probe
from minder.edge.probes.hardware import cpu_facts, cpus
from minder.edge.probes.program import run
from minder.model.probes import Measurement

if TYPE_CHECKING:
    import torch

__all__ = ["PROBE", "Product", "measure", "wrong_elements"]

PROBE = Probe(
    name="gemm",
    version=1,
    says="matrix products: right to the last bit, and how fast",
    limit_s=90.0,
    needs=("torch",),
    measures={
        "gemm_gflops": "GFLOP/s of one device, over all products: a throttled one stands still in some of them",
        "gemm_wrong": "wrong products of those made",
    },
    source="DLRover's node check; checksums of Huang and Abraham, 1984",
)

Product = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
_CPU_SIZE, _GPU_SIZE = 768, 4096
_LARGEST = 8  # of a factor: 4096 * 8 * 8 is below 2**24
_LEAST_ROUNDS = 5


def measure(options: Mapping[str, Any], product: Product | None = None) -> Finding:
    """options: seconds (per device, 1.5), size. product: what multiplies, torch.matmul if not given."""
    try:
        import torch
    except ImportError:
        return Finding("not_applicable", "torch is not installed")
    torch.set_num_threads(cpus())
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = [f"cuda:{index}" for index in range(gpus)] or ["cpu"]
    seconds, size = float(options.get("seconds", 1.5)), int(options.get("size", _GPU_SIZE if gpus else _CPU_SIZE))
    measures, faults = [], []
    for index, device in enumerate(devices):
        name = f"gpu{index}" if gpus else None
        rates, wrong = _rounds(torch.device(device), size, seconds, product or torch.matmul)
        warm = rates[1:] if len(rates) > 1 else rates
        measures.append(Measurement("gemm_gflops", statistics.harmonic_mean(warm), "GFLOP/s", "higher", name))
        measures.append(Measurement("gemm_wrong", len(wrong), "products", "none", name))
        if wrong:
            faults.append(f"{name or 'the processor'}: {len(wrong)} of {len(rates)} products are wrong, the first at {wrong[0]}")
    facts = {"torch": torch.__version__, **_device_facts(gpus), "size": str(size)}
    return Finding("failed" if faults else "measured", "; ".join(faults), tuple(measures), facts)


def _rounds(device: torch.device, size: int, seconds: float, product: Product) -> tuple[list[float], list[str]]:
    """GFLOP/s of each product, of which the first one warms up, and where the wrong ones are wrong."""
    import torch

    generator = torch.Generator().manual_seed(20260101)
    left, right = (torch.randint(-_LARGEST, _LARGEST + 1, (size, size), generator=generator) for _ in range(2))
    rows, columns = _sums(left, right)
    torch.backends.cuda.matmul.allow_tf32 = True
    a, b = left.to(device, torch.float32), right.to(device, torch.float32)
    rates: list[float] = []
    wrong: list[str] = []
    end_s = time.monotonic() + seconds
    while len(rates) < _LEAST_ROUNDS or time.monotonic() < end_s:
        begun = time.perf_counter()
        found = product(a, b)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        rates.append(2.0 * size**3 / (time.perf_counter() - begun) / 1e9)
        if place := wrong_elements(found, rows, columns):
            wrong.append(place)
    return rates, wrong


def _sums(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the weighted sums of the product's rows and columns must be, in 64-bit integers."""
    weights = _weights(left.shape[0])
    return left @ (right @ weights), (weights @ left) @ right


def _weights(size: int) -> torch.Tensor:
    """No two neighbours alike: errors of opposite sign do not cancel."""
    import torch

    return torch.arange(size, dtype=torch.int64) % 97 + 1


def wrong_elements(found: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> str:
    """Where a product is wrong, "" if it is right. Whole numbers up to 2**53 are exact in the sums."""
    import torch

    odd = ~torch.isfinite(found) | (found != found.round())  # a whole number and no other: sums would round a small fraction away
    weights = _weights(found.shape[0]).to(found.device, torch.float64)
    exact = torch.where(odd, torch.zeros_like(found), found).to(torch.float64)
    bad_rows = odd.any(dim=1).cpu() | ((exact @ weights).cpu() != rows)
    bad_columns = odd.any(dim=0).cpu() | ((weights @ exact).cpu() != columns)
    if not bool(bad_rows.any()) and not bool(bad_columns.any()):
        return ""
    return f"row {_first(bad_rows)}, column {_first(bad_columns)} ({int(bad_rows.sum())} rows, {int(bad_columns.sum())} columns)"


def _first(bad: torch.Tensor) -> str:
    return str(int(bad.nonzero()[0])) if bool(bad.any()) else "?"


def _device_facts(gpus: int) -> dict[str, str]:
    import torch

    if not gpus:
        return {**cpu_facts(), "device": "cpu"}
    return {"device": torch.cuda.get_device_name(0), "cuda": str(torch.version.cuda), "devices": str(gpus)}


if __name__ == "__main__":
    run(PROBE, measure)
