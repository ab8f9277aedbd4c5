"""What the GPUs' driver says of them: uncorrected ECC errors, remapped rows, NVLink and PCIe width, throttling. Nothing is run on them.

The driver's own words for broken hardware (a failed or pending row remapping, a GPU that is lost) are a fault; every number is left to the
comparison with equal machines and with the machine's own past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from minder.edge.probes.contract import Finding, Probe
from minder.edge.probes.hardware import cpu_facts
from minder.edge.probes.program import run
from minder.model.probes import Measurement

__all__ = ["PROBE", "measure"]

PROBE = Probe(
    name="device_health",
    version=1,
    says="ECC, remapped rows, NVLink and PCIe width, throttle reasons of each GPU",
    limit_s=30.0,
    needs=("gpu",),
    measures={
        "gpus": "GPUs that the driver shows",
        "gpu_ecc_uncorrected": "uncorrected ECC errors since the driver was loaded",
        "gpu_rows_remapped": "rows remapped after uncorrected errors: shown, not judged, since that is the repair",
        "gpu_nvlinks": "NVLinks that are active",
        "gpu_pcie_width": "lanes",
        "gpu_hardware_throttled": "1 where the hardware holds the clock down (heat, power brake)",
        "gpu_temperature": "°C",
    },
    source="ByteRobust's GPU checks; NVIDIA GPU memory error management",
    disturbs=False,
)

_HARDWARE_REASONS = 0x8 | 0x40 | 0x80  # HW slowdown, HW thermal slowdown, HW power brake
_MOST_LINKS = 18
_UNCORRECTED, _VOLATILE = 1, 0


def measure(options: Mapping[str, Any], nvml: Any = None) -> Finding:
    """nvml: the library, or a fake of it."""
    nvml = nvml or _library()
    if nvml is None:
        return Finding("not_applicable", "nvidia-ml-py is not installed")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Finding("not_applicable", f"the NVIDIA driver cannot be asked: {error}")
    count = int(nvml.nvmlDeviceGetCount())
    if not count:
        return Finding("not_applicable", "the driver shows no GPU")
    devices = [_Device(nvml, index) for index in range(count)]
    measures = [Measurement("gpus", count, "", "higher", bad="fail"), *(item for device in devices for item in device.measures())]
    faults = [fault for device in devices for fault in device.faults()]
    facts = {**cpu_facts(), "gpu": devices[0].name, "driver": _text(nvml.nvmlSystemGetDriverVersion())}
    return Finding("failed" if faults else "measured", "; ".join(faults), tuple(measures), facts)


def _library() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


class _Device:
    """One GPU. What the driver has no answer to is left out."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml, self._index, self._lost = nvml, index, ""
        self._handle = self._try(nvml.nvmlDeviceGetHandleByIndex, index)
        self.name = _text(self._ask("nvmlDeviceGetName")) or "?"
        self._rows = self._ask("nvmlDeviceGetRemappedRows")  # corrected, uncorrected, pending, failed

    def measures(self) -> Iterator[Measurement]:
        def known(name: str, value: Any, unit: str, better: Any, **more: Any) -> Iterator[Measurement]:
            if value is not None:
                yield Measurement(name, float(value), unit, better, f"gpu{self._index}", **more)

        ecc = self._ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE)
        yield from known("gpu_ecc_uncorrected", ecc, "errors", "zero", bad="fail")
        yield from known("gpu_rows_remapped", self._rows and self._rows[1], "rows", "none")
        yield from known("gpu_nvlinks", self._links(), "links", "higher", bad="fail")
        yield from known("gpu_pcie_width", self._ask("nvmlDeviceGetCurrPcieLinkWidth"), "lanes", "higher")
        yield from known("gpu_hardware_throttled", self._throttled(), "", "zero")
        yield from known("gpu_temperature", self._ask("nvmlDeviceGetTemperature", 0), "°C", "lower", tolerance=10.0)

    def faults(self) -> Iterator[str]:
        name = f"gpu{self._index}"
        if self._lost:
            yield f"{name}: {self._lost}"
        if self._rows and self._rows[3]:
            yield f"{name}: a row remapping failed: the vendor takes such a GPU back"
        if self._rows and self._rows[2]:
            yield f"{name}: a row remapping is pending: reset the GPU"

    def _links(self) -> int | None:
        states = [self._ask("nvmlDeviceGetNvLinkState", link) for link in range(_MOST_LINKS)]
        states_known = [state for state in states if state is not None]
        return sum(bool(state) for state in states_known) if states_known else None

    def _throttled(self) -> int | None:
        """Under the new name and the old: a driver may know one of them only."""
        for what in ("Event", "Throttle"):
            reasons = self._ask(f"nvmlDeviceGetCurrentClocks{what}Reasons")
            if reasons is not None:
                return int(bool(reasons & _HARDWARE_REASONS))
        return None

    def _ask(self, function: str, *arguments: Any) -> Any:
        found = getattr(self._nvml, function, None)
        return None if found is None or self._handle is None else self._try(found, self._handle, *arguments)

    def _try(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            if "lost" in type(error).__name__.lower() or getattr(error, "value", None) == 15:
                self._lost = "the driver has lost it"
            return None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


if __name__ == "__main__":
    run(PROBE, measure)
