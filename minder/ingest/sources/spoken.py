"""What telemetry says outright, as signals: the code of a GPU's newest Xid, and what a Prometheus says of its scrapes.

An exporter keeps the last Xid of a GPU until it is started again, so the gauge speaks only when it goes from one value that was seen to
another: not at the first look, and not when it falls back to 0. The same code twice cannot be seen. A scrape speaks when a target that
answered does not, when a third of its series is gone while it answers (a GPU that fell off the bus takes its series along; GWDG, arXiv
2603.28781), and when it takes ten times as long as it used to. Absence alone accuses no machine: such a signal stands beside others.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Protocol

import numpy as np

from minder.model.evidence import Signal
from minder.model.metrics import is_spoken
from minder.model.telemetry import Sample

if TYPE_CHECKING:
    from minder.ingest.sources.frames import Frames
    from minder.ingest.sources.recording import Recording

__all__ = ["SpokenMetrics", "SpokenSource", "with_spoken"]

_LOST_SHARE = 1 / 3
_SLOWER, _SLOW_S = 10.0, 1.0
_USUAL, _FEWEST = 60, 5  # scrapes


class SpokenMetrics:
    """Feed it every sample in time order, of one machine or of many."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str | None], float] = {}
        self._states: dict[tuple[str, str | None, str], bool] = {}  # machine, device and what it says, to whether it says it now
        self._usual: dict[tuple[str, str | None, str], deque[float]] = {}

    def read(self, sample: Sample) -> Iterator[Signal]:
        """The signals in one sample, mostly none."""
        code = sample.values.get("gpu_xid_code")
        if code is not None:
            yield from self._read_code(sample, code)
        if "scrape_up" in sample.values or "scrape_samples" in sample.values or "scrape_seconds" in sample.values:
            yield from self._read_scrape(sample)

    def _read_code(self, sample: Sample, code: float) -> Iterator[Signal]:
        key = (sample.machine, sample.device)
        before = self._codes.get(key)
        self._codes[key] = code
        if before is None or code in (before, 0.0):
            return
        message = f"the exporter's newest Xid of {sample.device or 'a GPU'} went from {before:.0f} to {code:.0f}"
        data = {"code": int(code), "source": "telemetry"}
        yield Signal(sample.time_s, "xid", sample.machine, message, device=sample.device, data=data)

    def _read_scrape(self, sample: Sample) -> Iterator[Signal]:
        who, values = sample.device or "the exporter", sample.values
        up = values.get("scrape_up")
        yield from self._turn(sample, "down", None if up is None else up == 0.0, f"{who} does not answer Prometheus any more")
        if up == 0.0:
            return
        usual, now = self._compare(sample, "scrape_samples")
        lost = None if math.isnan(usual) else now < (1.0 - _LOST_SHARE) * usual
        yield from self._turn(sample, "series_lost", lost, f"{who} gives {now:.0f} samples, it used to give {usual:.0f}")
        usual, now = self._compare(sample, "scrape_seconds")
        slow = None if math.isnan(usual) else now > max(_SLOW_S, _SLOWER * usual)
        yield from self._turn(sample, "slow", slow, f"{who} takes {now:.1f} s to answer, it used to take {usual:.2f} s")

    def _compare(self, sample: Sample, metric: str) -> tuple[float, float]:
        """(usual, now), NaN where unknown. What it says while it is unusual is not learned."""
        now = sample.values.get(metric, math.nan)
        usual = self._usual.setdefault((sample.machine, sample.device, metric), deque(maxlen=_USUAL))
        level = median(usual) if len(usual) >= _FEWEST else math.nan
        odd = now < (1.0 - _LOST_SHARE) * level or now > _SLOWER * level
        if not math.isnan(now) and not odd:
            usual.append(now)
        return (level, now) if not math.isnan(now) else (math.nan, now)

    def _turn(self, sample: Sample, state: str, says: bool | None, message: str) -> Iterator[Signal]:
        """Said once, when it begins; what was never seen otherwise says nothing."""
        if says is None:
            return
        key = (sample.machine, sample.device, state)
        before = self._states.get(key)
        self._states[key] = says
        if says and before is False:
            yield Signal(sample.time_s, "scrape", sample.machine, message, device=sample.device, data={"state": state})


class _Collects(Protocol):
    def collect(self, now_s: float) -> Sequence[Sample]: ...

    def close(self) -> None: ...


class SpokenSource:
    """A source whose samples pass unchanged; what they say outright is kept until `drain`."""

    def __init__(self, source: _Collects) -> None:
        self._source, self._metrics = source, SpokenMetrics()
        self._said: list[Signal] = []

    def collect(self, now_s: float) -> Sequence[Sample]:
        samples = self._source.collect(now_s)
        self._said += _signals(self._metrics, samples)
        return samples

    @property
    def failures(self) -> Mapping[str, str]:
        """Machine to why it could not be read, of a source that asks each by itself; empty otherwise."""
        return dict(getattr(self._source, "failures", {}))

    @property
    def late_s(self) -> Mapping[str, float]:
        """Machine to how far its stamps are behind, of a source that reads them as late; empty otherwise."""
        return dict(getattr(self._source, "late_s", {}))

    def drain(self) -> list[Signal]:
        """Signals since the last call."""
        said, self._said = self._said, []
        return said

    def close(self) -> None:
        self._source.close()


def with_spoken(recording: Recording) -> Recording:
    """The recording with the signals that its telemetry holds, among those of its events."""
    if not any(is_spoken(name) for name in recording.frames.metrics):
        return recording
    said = _signals(SpokenMetrics(), _spoken_samples(recording.frames))
    return replace(recording, signals=tuple(sorted((*recording.signals, *said), key=lambda signal: signal.time_s)))


def _spoken_samples(frames: Frames) -> Iterator[Sample]:
    spoken = [k for k, name in enumerate(frames.metrics) if is_spoken(name)]
    rows = np.flatnonzero(~np.isnan(frames.values_NK[:, spoken]).all(axis=1))
    for n in rows.tolist():
        values: Mapping[str, float] = {
            frames.metrics[k]: float(frames.values_NK[n, k]) for k in spoken if not math.isnan(frames.values_NK[n, k])
        }
        device = int(frames.device_N[n])
        name = frames.devices[device] if device >= 0 else None
        yield Sample(float(frames.times_N[n]), frames.machines[int(frames.machine_N[n])], values, name)


def _signals(metrics: SpokenMetrics, samples: Iterable[Sample]) -> list[Signal]:
    return [signal for sample in samples for signal in metrics.read(sample)]
