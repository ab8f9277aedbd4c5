"""An all-gather of two machines by torch.distributed: NCCL where both have GPUs, else gloo over the interface of the job's network.

What the two must agree on goes over the connection that they have proven: no store listens for callers.
"""

from __future__ import annotations

import base64
import fcntl
import os
import socket
import statistics
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from minder.edge.probes.pair_link import Link, WrongBytesError
from minder.edge.probes.pair_order import PairOrder

__all__ = ["Gathered", "all_gather", "interface_of"]

_CPU_BYTES, _GPU_BYTES = 4 << 20, 64 << 20
_ROUNDS = 5
_WAIT_S = 30.0
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True, slots=True)
class Gathered:
    """bandwidth: B/s that one rank sends and receives. facts: torch, backend, and the GPU's name."""

    bandwidth: float
    facts: dict[str, str]


def all_gather(link: Link, order: PairOrder) -> Gathered:
    """Raises RuntimeError where the collective fails, WrongBytesError, and OSError where the connection breaks."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_of(order.own) or "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", os.environ["GLOO_SOCKET_IFNAME"])
    import torch
    import torch.distributed as dist

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    link.wait_for(_WAIT_S + 30.0)  # loading torch takes its time
    link.say({"gpus": gpus})
    on_gpus = bool(link.hear().get("gpus")) and bool(gpus)
    rank, backend = int(order.role == "connect"), "nccl" if on_gpus else "gloo"
    device = torch.device("cuda:0" if on_gpus else "cpu")
    store = _make_store(link)
    dist.init_process_group(backend, store=store, rank=rank, world_size=2, timeout=timedelta(seconds=_WAIT_S))
    size = _GPU_BYTES if on_gpus else _CPU_BYTES
    mine = torch.full((size,), rank + 1, dtype=torch.uint8, device=device)
    rates = [_gather_once(mine, device) for _ in range(_ROUNDS)]
    dist.destroy_process_group()
    store.end()
    facts = {"torch": torch.__version__, "backend": backend} | ({"gpu": torch.cuda.get_device_name(device)} if on_gpus else {})
    return Gathered(statistics.median(rates[1:]), facts)


def _gather_once(mine: Any, device: Any) -> float:
    import torch
    import torch.distributed as dist

    both = [torch.empty_like(mine) for _ in range(2)]
    begun = time.perf_counter()
    dist.all_gather(both, mine)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds = time.perf_counter() - begun
    wrong = sum(int((block != rank + 1).sum()) for rank, block in enumerate(both))
    if wrong:
        raise WrongBytesError(f"{wrong} wrong bytes were gathered")
    return 2.0 * float(mine.numel()) / seconds


def _make_store(link: Link) -> Any:
    """A store of two over `link`: what one sets, the other has."""
    import torch.distributed as dist

    class Store(dist.Store):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._values: dict[str, bytes] = {}
            self._news = threading.Condition()
            self._over = False
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()

        def set(self, key: str, value: Any) -> None:
            data = value.encode() if isinstance(value, str) else bytes(value)
            self._keep(key, data)
            link.say({"key": key, "value": base64.b64encode(data).decode()})

        def get(self, key: str) -> bytes:
            self.wait([key])
            return self._values[key]

        def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
            with self._news:
                self._news.wait_for(lambda: self._over or self.check(keys), _WAIT_S)
            if not self.check(keys):
                raise RuntimeError(f"the peer did not say {', '.join(keys)} within {_WAIT_S:g} s")

        def check(self, keys: Sequence[str]) -> bool:
            return all(key in self._values for key in keys)

        def end(self) -> None:
            """The connection is its owner's again: both have said all."""
            link.say({"over": True})
            self._reader.join(_WAIT_S)

        def _keep(self, key: str, data: bytes) -> None:
            with self._news:
                self._values[key] = data
                self._news.notify_all()

        def _read(self) -> None:
            try:
                while "over" not in (heard := link.hear()):
                    self._keep(str(heard["key"]), base64.b64decode(heard["value"]))
            except (OSError, KeyError, ValueError):
                with self._news:
                    self._over = True
                    self._news.notify_all()

    return Store()


def interface_of(address: str) -> str:
    """The interface that has an IPv4 address, "" where none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return ""
