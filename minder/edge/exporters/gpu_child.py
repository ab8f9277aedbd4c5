"""The process that talks to NVML for the agent: a line in asks for a sample, a line of JSON answers.

First it says what it found: {"ready": [{"uuid", "pci"}, ...]}, or {"absent": reason} and ends.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from minder.edge.exporters.nvml import open_devices

__all__ = ["main"]


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's ^C is the agent's to handle
    try:
        import pynvml
    except ImportError:
        return _absent("nvidia-ml-py is not installed")
    try:
        devices = open_devices(pynvml)
    except pynvml.NVMLError as error:
        return _absent(type(error).__name__)
    if not devices:
        return _absent("no GPU")
    _say({"ready": [{"uuid": device.uuid, "pci": device.pci} for device in devices]})
    for _ in sys.stdin:
        _say({"devices": [{"uuid": device.uuid, **device.read()} for device in devices]})
    return 0


def _absent(reason: str) -> int:
    _say({"absent": reason})
    return 0


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
