"""The heartbeat file: one page of shared memory per training process, written by it, read by agent and launcher.

There is no lock: the writer brackets each change with an odd and an even sequence number, a reader that saw a change tries
again. A page holds the last 64 steps, so that a reader at 1 Hz misses none of a job that steps every 20 ms.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from time import time

from minder.model.errors import WireError

__all__ = [
    "SAID_NAN",
    "WORK_UNITS",
    "GradientSpike",
    "HeartbeatPage",
    "HeartbeatView",
    "StepRecord",
    "nonfinite_since",
    "read_heartbeat",
    "was_said",
]

_MAGIC = b"MNDRHB01"
_SIZE = 4096
_SEQ = struct.Struct("<Q")  # at 8
_IDENTITY = struct.Struct("<qqqd")  # at 16: pid, rank, generation, created
_ALIVE = struct.Struct("<d")  # at 48: last tick of the background thread
_PHASE = struct.Struct("<16sd")  # at 56: open phase (empty: none), since
_COUNT = struct.Struct("<Q")  # at 88: records written so far
_RECORD = struct.Struct("<qddddq")  # step, time, seconds, loss, grad_norm, flags
_RING_AT, _RING = 128, 64
_SPIKE_COUNT = struct.Struct("<Q")  # at 96: spikes written so far
_SPIKE = struct.Struct("<qddd")  # step, time, g squared, v
_WORK = struct.Struct("<dq")  # at 104: work of this generation so far, and its place in WORK_UNITS + 1; 0 where the script gives none
WORK_UNITS = ("samples", "tokens")
_SPIKES_AT, _SPIKES = 3200, 16  # behind the ring of steps: readers that know of none read the page as before
_FIRST = _RING_AT // 8  # in words of 8 bytes, as HeartbeatPage writes: the first record of the ring and the last
_LAST = _FIRST + (_RING - 1) * 6
_REAL = struct.Struct("<d")
SAID_NAN: float = _REAL.unpack(b"MNDR\0\0\xf8\x7f")[0]  # a loss that the script gave as NaN; any other NaN means that no loss was given
NONFINITE_LOCAL_GRADIENT = 1  # flag: this rank's own gradient, before the all-reduce, was not finite


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One heartbeat. seconds: since the previous step's heartbeat (NaN for the first). loss, grad_norm: NaN if not given (`was_said`)."""

    step: int
    time_s: float
    seconds: float
    loss: float
    grad_norm: float
    flags: int = 0


@dataclass(frozen=True, slots=True)
class GradientSpike:
    """This rank's own gradient, before the all-reduce, far above its past. squared: the sum of its squares; usual: their mean so far."""

    step: int
    time_s: float
    squared: float
    usual: float


@dataclass(frozen=True, slots=True)
class HeartbeatView:
    """What a reader sees. rank, generation are -1 while unknown; alive_time_s is 0 without a background thread."""

    pid: int
    rank: int
    generation: int
    alive_time_s: float
    phase: str
    phase_since_s: float
    count: int
    recent: tuple[StepRecord, ...]
    spike_count: int = 0
    spikes: tuple[GradientSpike, ...] = ()  # the last 16 of this generation
    work: float | None = None  # of this generation so far, in work_unit; None where the script gives none
    work_unit: str | None = None

    @property
    def last(self) -> StepRecord | None:
        return self.recent[-1] if self.recent else None


class HeartbeatPage:
    """The writer's side. Creates or takes over the file; every method is a few memory writes.

    A step's code is cold when it runs: what counts is how much of the interpreter `beat` touches. So it writes through two views of the
    page (packing a structure costs 9 microseconds beside a real step, all of these writes 3) and makes no system call (5). Machines that
    train are little-endian.
    """

    __slots__ = ("_last_time_s", "_map", "_place", "_real", "_seq", "_spike_count", "_whole", "count", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(handle, _SIZE)
            self._map = mmap.mmap(handle, _SIZE)
            self._whole = memoryview(self._map).cast("q")
            self._real = memoryview(self._map).cast("d")
        finally:
            os.close(handle)
        self.count, self._place, self._spike_count = 0, _FIRST, 0
        self._seq = 0
        self._last_time_s = math.nan
        self._map[0 : len(_MAGIC)] = _MAGIC
        _COUNT.pack_into(self._map, 88, 0)
        _PHASE.pack_into(self._map, 56, b"", 0.0)
        _ALIVE.pack_into(self._map, 48, 0.0)
        self.identify()

    def identify(self, rank: int = -1, generation: int = -1) -> None:
        """Say who writes. A new generation starts a new series of steps, and neither an old step nor an open phase survives into it
        (dlrover#1749: a dangling "checkpoint begun" killed the job for ever)."""
        self._begin()
        self.count, self._place, self._spike_count = 0, _FIRST, 0
        _COUNT.pack_into(self._map, 88, 0)
        _SPIKE_COUNT.pack_into(self._map, 96, 0)
        _WORK.pack_into(self._map, 104, 0.0, 0)
        _PHASE.pack_into(self._map, 56, b"", 0.0)
        _IDENTITY.pack_into(self._map, 16, os.getpid(), rank, generation, time())
        self._end()
        self._last_time_s = math.nan

    def beat(self, step: int, loss: float = math.nan, grad_norm: float = math.nan, flags: int = 0) -> None:
        """Write one record. Raises ValueError for a step that needs more than 64 bits; the page stays as it was."""
        now_s, whole, real, place, seq = time(), self._whole, self._real, self._place, self._seq
        whole[1] = seq + 1
        try:
            whole[place] = step  # the first write: nothing is changed if it is refused
            real[place + 1] = now_s
            real[place + 2] = now_s - self._last_time_s
            real[place + 3] = loss
            real[place + 4] = grad_norm
            whole[place + 5] = flags
            whole[11] = self.count = self.count + 1
        finally:
            whole[1] = self._seq = seq + 2
        self._place = place + 6 if place < _LAST else _FIRST
        self._last_time_s = now_s

    def work(self, amount: float, unit: str) -> None:
        """Add a step's work. unit: of WORK_UNITS; another one than before begins anew."""
        place = WORK_UNITS.index(unit) + 1
        so_far, known = _WORK.unpack_from(self._map, 104)
        self._begin()
        _WORK.pack_into(self._map, 104, amount + (so_far if known == place else 0.0), place)
        self._end()

    def spike(self, step: int, squared: float, usual: float) -> None:
        """Write a spike of this rank's own gradient beside the steps: it is no step, and must neither shorten one nor end one."""
        self._begin()
        _SPIKE.pack_into(self._map, _SPIKES_AT + self._spike_count % _SPIKES * _SPIKE.size, step, time(), squared, usual)
        self._spike_count += 1
        _SPIKE_COUNT.pack_into(self._map, 96, self._spike_count)
        self._end()

    def last_step(self) -> int:
        """The newest step of a record without flags, or -1."""
        for back in range(1, min(self.count, _RING) + 1):
            place = _FIRST + (self.count - back) % _RING * 6
            if not self._whole[place + 5]:
                return int(self._whole[place])
        return -1

    def phase(self, name: str) -> None:
        """Open a phase (checkpoint, evaluation, compile), or close it with ""."""
        self._begin()
        _PHASE.pack_into(self._map, 56, name.encode()[:16], time())
        self._end()

    def alive(self) -> None:
        """Tick of the background thread: the interpreter still runs."""
        self._real[6] = time()  # where _ALIVE is

    def close(self) -> None:
        self._whole.release()
        self._real.release()
        self._map.close()

    def _begin(self) -> None:
        self._seq += 1
        _SEQ.pack_into(self._map, 8, self._seq)

    def _end(self) -> None:
        self._seq += 1
        _SEQ.pack_into(self._map, 8, self._seq)


def read_heartbeat(path: str | os.PathLike[str]) -> HeartbeatView:
    """One consistent look at a page. Raises WireError if it is no heartbeat file or kept changing."""
    for _ in range(50):
        try:
            page = Path(path).read_bytes()
        except OSError as error:
            raise WireError(f"heartbeat file {path}: {error.strerror}") from error
        if len(page) != _SIZE or page[: len(_MAGIC)] != _MAGIC:
            raise WireError(f"heartbeat file {path} is not one of ours: remove it")
        before = _SEQ.unpack_from(page, 8)[0]
        after = _SEQ.unpack_from(_reread(path), 0)[0]
        if before == after and before % 2 == 0:
            return _parse(page)
    raise WireError(f"heartbeat file {path} changed at every look")


def was_said(value: float) -> bool:
    """Whether a record's loss or gradient norm was given by the script, be it as NaN."""
    return not math.isnan(value) or _REAL.pack(value) == _REAL.pack(SAID_NAN)


def nonfinite_since(view: HeartbeatView) -> int | None:
    """The step, of those that the page remembers, since which this rank's loss was not finite; None if its last one was, or is unknown."""
    first = None
    for record in reversed(view.recent):
        if not was_said(record.loss) or math.isfinite(record.loss):
            break
        first = record.step
    return first


def _reread(path: str | os.PathLike[str]) -> bytes:
    with open(path, "rb", buffering=0) as handle:
        handle.seek(8)
        return handle.read(8).ljust(8, b"\0")


def _parse(page: bytes) -> HeartbeatView:
    pid, rank, generation, _ = _IDENTITY.unpack_from(page, 16)
    phase, since_s = _PHASE.unpack_from(page, 56)
    count = _COUNT.unpack_from(page, 88)[0]
    first = max(0, count - _RING)
    recent = tuple(StepRecord(*_RECORD.unpack_from(page, _RING_AT + (index % _RING) * _RECORD.size)) for index in range(first, count))
    name = phase.rstrip(b"\0").decode(errors="replace")
    spikes = _SPIKE_COUNT.unpack_from(page, 96)[0]
    kept = (_SPIKE.unpack_from(page, _SPIKES_AT + (index % _SPIKES) * _SPIKE.size) for index in range(max(0, spikes - _SPIKES), spikes))
    alive_s = _ALIVE.unpack_from(page, 48)[0]
    far = tuple(GradientSpike(*item) for item in kept)
    return HeartbeatView(pid, rank, generation, alive_s, name, since_s, count, recent, spikes, far, *_parse_work(page))


def _parse_work(page: bytes) -> tuple[float | None, str | None]:
    """A page of a writer that knows no work has zeros there."""
    amount, place = _WORK.unpack_from(page, 104)
    return (amount, WORK_UNITS[place - 1]) if 0 < place <= len(WORK_UNITS) and math.isfinite(amount) else (None, None)
