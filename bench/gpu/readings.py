"""What minder reads of a GPU: NVML idle and under load, the agent's metrics page; and its probes, right and with one wrong bit."""

from __future__ import annotations

import os
import re
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BURN = """
import sys, torch
kind = sys.argv[1]
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
b = torch.randn(1 << 28, device="cuda")
print("ready", flush=True)
while True:
    for _ in range(20):
        torch.matmul(a, a) if kind == "tensor" else b.mul_(1.0)
    torch.cuda.synchronize()
"""
PROBES = "device_health,memory,gemm,all_to_all,alignment,links,clock,space"


def nvml_rows(out: Path, device: str) -> list[dict[str, Any]]:
    import pynvml

    from minder.edge.exporters.nvml import open_devices

    found = open_devices(pynvml)[0]
    readings = {"idle": _sample(found)}
    for kind in ("tensor", "memory"):
        with _burning(kind):
            readings[f"under {kind} load"] = _sample(found)
    rows = []
    names = sorted({name for reading in readings.values() for name in reading["values"]})
    for name in names:
        values = {when: reading["values"].get(name) for when, reading in readings.items()}
        said = ", ".join(f"{when} {'none' if value is None else f'{value:.6g}'}" for when, value in values.items())
        rows.append(_row(f"NVML {name}", values["under tensor load"], "", said))
    for name, value in sorted(readings["idle"]["counters"].items()):
        rows.append(_row(f"NVML {name}", value, "", "counter"))
    wanted = {
        "gpu_duty_cycle_ratio", "gpu_memory_bandwidth_ratio", "gpu_power_draw_watts", "gpu_temperature_celsius", "gpu_clock_hertz",
        "gpu_memory_used_ratio", "gpu_throttle_reasons", "nvlink_bandwidth_bytes_per_second", "pcie_bandwidth_bytes_per_second",
        "pcie_link_width", "gpu_sm_activity_ratio", "gpu_tensor_activity_ratio", "gpu_graphics_activity_ratio", "gpu_fp_activity_ratio",
        "gpu_ecc_uncorrectable", "gpu_rows_remapped",
    }  # fmt: skip
    missing = sorted(wanted - set(names) - set(readings["idle"]["counters"]))
    rows.append(
        _row("NVML fields that give nothing", len(missing), "", "; ".join(f"{name}: {_why(pynvml, found, name)}" for name in missing))
    )
    fast, slow = _scrape_ms(found, False), _scrape_ms(found, True)
    rows += [_row("one reading, slow values repeated", fast, "ms"), _row("one reading with slow values", slow, "ms")]
    return [*rows, *_agent_rows(out)]


def _sample(device: Any) -> dict[str, Any]:
    """After two seconds in which GPM and the utilisation average over what runs."""
    device.read()
    time.sleep(2.0)
    device._slow_at_s = float("-inf")
    return dict(device.read())


def _why(nvml: Any, device: Any, name: str) -> str:
    calls = {
        "gpu_rows_remapped": lambda: nvml.nvmlDeviceGetRemappedRows(device._handle),
        "gpu_ecc_uncorrectable": lambda: nvml.nvmlDeviceGetTotalEccErrors(device._handle, 1, 0),
        "pcie_link_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(device._handle),
        "pcie_bandwidth_bytes_per_second": lambda: nvml.nvmlDeviceGetPcieThroughput(device._handle, 0),
        "gpu_tensor_activity_ratio": lambda: nvml.nvmlGpmQueryDeviceSupport(device._handle).isSupportedDevice,
        "nvlink_bandwidth_bytes_per_second": lambda: nvml.nvmlDeviceGetNvLinkState(device._handle, 0),
        "gpu_throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(device._handle),
    }
    if name not in calls:
        return "no value"
    try:
        return f"answers {calls[name]()!r}"
    except nvml.NVMLError as error:
        return str(error)


def _scrape_ms(device: Any, slow: bool) -> float:
    times = []
    for _ in range(20):
        if slow:
            device._slow_at_s = float("-inf")
        began_s = time.perf_counter()
        device.read()
        times.append(1e3 * (time.perf_counter() - began_s))
    return statistics.median(times)


@contextmanager
def _burning(kind: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", BURN, kind], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(1.0)
        yield
    finally:
        process.kill()
        process.wait()


def _agent_rows(out: Path) -> list[dict[str, Any]]:
    """A real agent's page, once, under load."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = out / "raw" / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "minder",
        "agent",
        "--listen",
        f"127.0.0.1:{port}",
        "--machine",
        "m0",
        "--run-dir",
        str(folder / "run"),
    ]
    with _burning("tensor"), (folder / "log").open("wb") as log:
        agent = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
        try:
            page, spent_ms = _page(f"http://127.0.0.1:{port}/metrics")
        finally:
            agent.terminate()
            agent.wait(10.0)
    (folder / "metrics.txt").write_text(page)
    series = [line for line in page.splitlines() if line and not line.startswith("#")]
    of_gpu = [line for line in series if re.match(r"minder_(gpu|nvlink|pcie)", line)]
    names = ", ".join(sorted({line.split("{")[0].removeprefix("minder_") for line in of_gpu}))
    return [_row("the agent's page", spent_ms, "ms", f"{len(series)} series, {len(of_gpu)} of the GPU: {names}")]


def _page(url: str) -> tuple[str, float]:
    end_s, page, spent_ms = time.monotonic() + 20.0, "", 0.0
    while time.monotonic() < end_s and not re.search(r"^minder_gpu_power", page, re.MULTILINE):
        time.sleep(0.5)
        began_s = time.perf_counter()
        try:
            with urllib.request.urlopen(url, timeout=5.0) as answer:
                page = answer.read().decode()
        except OSError:
            continue
        spent_ms = 1e3 * (time.perf_counter() - began_s)
    return page, spent_ms


def probe_rows(out: Path, device: str) -> list[dict[str, Any]]:
    """Each probe as `minder machine test` runs it; then a product with one flipped bit, and a step that is computed with one."""
    from minder.app.probing import chosen_probes, run_here

    rows = []
    for name in chosen_probes(PROBES):
        try:
            (result,) = run_here((name,)).results
        except Exception as error:  # noqa: BLE001 - the next probe is independent, and what failed is a row
            rows.append(_row(f"probe {name}", None, "", f"failed: {type(error).__name__}: {error}"))
            continue
        measures = ", ".join(f"{item.name} {item.value:.5g} {item.unit}" for item in result.measures[:8])
        rows.append(_row(f"probe {name}", result.seconds, "s", f"{result.state} {result.detail[:160]} {measures}".strip()))
    return [*rows, *_wrong_bit_rows(device)]


def _wrong_bit_rows(device: str) -> list[dict[str, Any]]:
    import torch

    from minder.edge.probes import alignment, gemm
    from minder.edge.probes.alignment_model import ReferenceStep

    def flip_product(a: Any, b: Any) -> Any:
        found = torch.matmul(a, b)
        _flip(found)
        return found

    began_s = time.monotonic()
    wrong = gemm.measure({"seconds": 0.3}, flip_product)
    rows = [_row("gemm with one flipped bit", time.monotonic() - began_s, "s", f"{wrong.state}: {wrong.detail[:200]}")]

    products = iter(range(1_000_000))

    class Flips(ReferenceStep):
        """One product has one bit flipped: the twentieth of all, which is one of the first repetition only."""

        def matmul(self, at: Any, name: str, left: Any, right: Any) -> Any:
            product = super().matmul(at, name, left, right)
            if next(products) == 20:
                _flip(product)
            return product

    began_s = time.monotonic()
    options = {} if device == "cuda" else {"size": "tiny"}
    found = alignment.measure(options, Flips)
    return [*rows, _row("alignment with one flipped bit", time.monotonic() - began_s, "s", f"{found.state}: {found.detail[:200]}")]


def _flip(tensor: Any) -> None:
    """A high bit of one element's mantissa: a value that stays finite."""
    import torch

    whole = tensor.detach().view(torch.int32 if tensor.element_size() == 4 else torch.int16).view(-1)
    whole[len(whole) // 2] ^= 1 << (20 if tensor.element_size() == 4 else 6)


def loop_rows(out: Path, device: str, fault: str) -> list[dict[str, Any]]:
    """The whole of minder: controller, launchers, agents of three machines and a standby; a rank is stopped, its machine evicted, the job
    resumed, and its losses compared with an undisturbed run."""
    import dataclasses

    os.environ["MINDER_LAB_DEVICE"] = device
    from minder.simulate.demo.options import DemoOptions
    from minder.simulate.demo.play import play

    options = DemoOptions(
        fault=fault, out=out / "raw" / f"loop-{fault}", machines=3, standbys=1, machine=1, at_step=12, steps=30, step_seconds=0.2,
        mode="processes", telemetry="scrape",
    )  # fmt: skip
    played = play(options, lambda stage, message: None, deadline_s=90.0)
    outcome = dataclasses.asdict(played.outcome)
    rows = [
        _row(f"whole loop, {fault}: {name}", outcome[name], "s")
        for name in ("detect_s", "decide_s", "evict_s", "restart_s", "first_step_s")
    ]
    equal = played.comparison
    said = f"evicted {len(outcome['evicted'])}, generations {outcome['generations']}, steps lost {outcome['steps_lost']}"
    rows.append(_row(f"whole loop, {fault}: as the fault demands", int(played.outcome.right), "", f"{said}; wrong: {outcome['wrong']}"))
    rows.append(_row(f"whole loop, {fault}: losses equal", None if equal is None else int(equal.equal), "", getattr(equal, "detail", "")))
    return [*rows, _row(f"whole loop, {fault}: from start to end", played.seconds, "s")]


def _row(measure: str, value: Any, unit: str, detail: str = "") -> dict[str, Any]:
    return {"measure": measure, "value": value, "unit": unit, "detail": detail}
