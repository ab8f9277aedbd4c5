"""Settings of the machine that a probe may change: read before it runs, and put back after it, whatever became of it.

ByteRobust reports a diagnostic that removed a GPU's frequency lock, after which the job ran slower. Each call runs in a child, since a
driver may hang. Power limit, compute mode, persistence mode and application clocks are kept; clocks that are locked with `nvidia-smi -lgc`
cannot be read back.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minder.edge.probes.runner import MOST, run_child

__all__ = ["Restored", "read_gpus", "restore", "save", "write_gpus"]

_LIMIT_S = 20.0
_SM, _MEMORY = 1, 2
# Name, how it is read, how it is written. Values are as NVML has them: mW, modes, (memory, graphics) in MHz.
_GPU = (
    ("power limit", "nvmlDeviceGetPowerManagementLimit", "nvmlDeviceSetPowerManagementLimit"),
    ("compute mode", "nvmlDeviceGetComputeMode", "nvmlDeviceSetComputeMode"),
    ("persistence mode", "nvmlDeviceGetPersistenceMode", "nvmlDeviceSetPersistenceMode"),
)


@dataclass(frozen=True, slots=True)
class Restored:
    """changed: what the probe had left otherwise, and is as before; failed: what could not be put back, with the reason."""

    changed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


async def save(kinds: Sequence[str]) -> dict[str, Any] | str:
    """What stands now, or one line on why that is not known: then nothing that changes it may run."""
    if not kinds:
        return {}
    ended = await run_child([sys.executable, "-P", __file__, "save"], _LIMIT_S, most_s=MOST * _LIMIT_S)
    try:
        return dict(json.loads(ended.output))
    except ValueError:
        return f"the settings that it may change could not be read: {ended.error or 'no answer'}"


async def restore(saved: Mapping[str, Any]) -> Restored:
    if not saved:
        return Restored()
    ended = await run_child([sys.executable, "-P", __file__, "restore", json.dumps(dict(saved))], _LIMIT_S, most_s=MOST * _LIMIT_S)
    try:
        found = json.loads(ended.output)
        return Restored(tuple(found["changed"]), tuple(found["failed"]))
    except (ValueError, KeyError, TypeError):
        return Restored(failed=(f"no answer from the driver: {ended.error or 'it hangs'}",))


def read_gpus(nvml: Any) -> dict[str, dict[str, Any]]:
    """GPU to the settings that its driver reports."""
    return {f"gpu{index}": dict(_read(nvml, handle)) for index, handle in _handles(nvml)}


def write_gpus(nvml: Any, saved: Mapping[str, Mapping[str, Any]]) -> Restored:
    """Put back what differs. A setting that the driver refuses is reported; it needs root."""
    changed, failed = [], []
    for index, handle in _handles(nvml):
        now, before = dict(_read(nvml, handle)), saved.get(f"gpu{index}", {})
        for name, value in before.items():
            if now.get(name) == value:
                continue
            difference = f"gpu{index} {name} {now.get(name)}, was {value}"
            error = _write(nvml, handle, name, value)
            failed.append(f"{difference}: {error}") if error else changed.append(difference)
    return Restored(tuple(changed), tuple(failed))


def _handles(nvml: Any) -> Iterator[tuple[int, Any]]:
    for index in range(int(nvml.nvmlDeviceGetCount())):
        yield index, nvml.nvmlDeviceGetHandleByIndex(index)


def _read(nvml: Any, handle: Any) -> Iterator[tuple[str, Any]]:
    for name, getter, _ in _GPU:
        try:
            yield name, getattr(nvml, getter)(handle)
        except nvml.NVMLError:
            continue
    try:
        yield "application clocks", [nvml.nvmlDeviceGetApplicationsClock(handle, kind) for kind in (_MEMORY, _SM)]
    except nvml.NVMLError:
        return


def _write(nvml: Any, handle: Any, name: str, value: Any) -> str:
    """What the driver said against it, "" where it is done."""
    try:
        if name == "application clocks":
            nvml.nvmlDeviceSetApplicationsClocks(handle, *value)
        else:
            getattr(nvml, next(setter for known, _, setter in _GPU if known == name))(handle, value)
    except nvml.NVMLError as error:
        return str(error)
    return ""


def _driver() -> Any:
    """NVML, or None on a machine without NVIDIA's driver: it has nothing to keep."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return None
    return pynvml


def _main(arguments: Sequence[str]) -> None:
    nvml = _driver()
    if arguments[0] == "save":
        print(json.dumps(read_gpus(nvml) if nvml is not None else {}))
        return
    found = write_gpus(nvml, json.loads(arguments[1])) if nvml is not None else Restored()
    print(json.dumps({"changed": found.changed, "failed": found.failed}))


if __name__ == "__main__":
    _main(sys.argv[1:])
