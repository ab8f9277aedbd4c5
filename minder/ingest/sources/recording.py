"""A recording folder (docs/recordings.md): what one job looked like. What is missing is "no data", never "healthy"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from minder.ingest.sources.captures import CaptureFolder, find_captures
from minder.ingest.sources.events import read_events
from minder.ingest.sources.frames import Frames, load_frames, no_frames
from minder.ingest.sources.jobfile import DevicePlace, RankPlace, RecordedJob, read_devices, read_job, read_ranks
from minder.ingest.sources.parts import table_paths
from minder.ingest.sources.sightings import Sighting, read_sightings
from minder.model.errors import BadInputError, RecordingError
from minder.model.evidence import Signal
from minder.model.telemetry import Sample
from minder.model.topology import Topology

__all__ = ["Recording", "RecordingSource", "read_recording"]


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording in memory. frames name the job's machines first, then the standbys.

    interval_s: job.toml's sample interval, else the median gap between a machine's samples.
    stacks, collectives: captures inside the recording, in time order; nothing in them is read here.
    sightings: what our own controller saw at each of its ticks; empty in a recording of anybody else.
    """

    path: Path
    job: RecordedJob
    topology: Topology
    frames: Frames
    interval_s: float
    signals: tuple[Signal, ...] = ()
    ranks: tuple[RankPlace, ...] = ()
    devices: tuple[DevicePlace, ...] = ()
    stacks: tuple[CaptureFolder, ...] = ()
    collectives: tuple[CaptureFolder, ...] = ()
    sightings: tuple[Sighting, ...] = ()

    @property
    def name(self) -> str:
        """The folder's base name, as verdicts call the recording."""
        return self.path.resolve().name

    @property
    def machines(self) -> tuple[str, ...]:
        return self.job.machines

    def until(self, time_s: float) -> Recording:
        """What was known at a time (inclusive): later samples, events and captures are cut off."""
        stamp = time_s + 0.0005  # file times are whole milliseconds
        signals = tuple(signal for signal in self.signals if signal.time_s <= stamp)
        sightings = tuple(item for item in self.sightings if item.time_s <= stamp)
        stacks = tuple(item for item in self.stacks if item.time_s <= stamp)
        collectives = tuple(item for item in self.collectives if item.time_s <= stamp)
        frames = self.frames.until(stamp)
        return replace(self, frames=frames, signals=signals, sightings=sightings, stacks=stacks, collectives=collectives)

    @property
    def start_s(self) -> float | None:
        """Time of the first sample or event, None for neither."""
        return min(self._ends(0), default=None)

    @property
    def end_s(self) -> float | None:
        """Time of the last sample or event."""
        return max(self._ends(-1), default=None)

    def _ends(self, at: int) -> list[float]:
        ends = [float(self.frames.times_N[at])] if len(self.frames.times_N) else []
        return ends + ([self.signals[at].time_s] if self.signals else [])


def read_recording(path: str | Path) -> Recording:
    """Read and check a recording folder. Raises RecordingError that says what, where and how to mend it.

    truth.json is not read here: see `read_truths`.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise RecordingError(f"{folder} is no folder: name a recording, a folder with a job.toml")
    job = read_job(folder / "job.toml")
    ranks = read_ranks(folder / "ranks.json", job)
    try:
        topology = job.topology(_first_placement(ranks))
    except BadInputError as error:
        raise RecordingError(f"{folder}: {error}") from error
    machines = (*job.machines, *job.standbys)
    paths = table_paths(folder, "telemetry")
    frames = load_frames(paths, machines) if paths else no_frames(machines)
    signals = read_events(folder / "events.jsonl")
    last_s = _last_s(frames, signals)
    return Recording(
        path=folder,
        job=job,
        topology=topology,
        frames=frames,
        interval_s=job.interval_s or _median_gap_s(frames),
        signals=signals,
        ranks=ranks,
        devices=read_devices(folder / "devices.json"),
        stacks=find_captures(folder / "stacks", last_s),
        collectives=find_captures(folder / "collectives", last_s),
        sightings=read_sightings(folder),
    )


def _first_placement(ranks: tuple[RankPlace, ...]) -> Mapping[int, str]:
    """Rank to machine when the recording starts: the lowest generation."""
    if not ranks:
        return {}
    first = min(place.generation or 0 for place in ranks)
    return {place.rank: place.machine for place in ranks if (place.generation or 0) == first}


def _median_gap_s(frames: Frames) -> float:
    gaps = []
    for machine in range(len(frames.machines)):
        times = np.unique(frames.times_N[frames.machine_N == machine])
        gaps.append(np.diff(times))
    every = np.concatenate(gaps) if gaps else np.zeros(0)
    return max(0.1, round(float(np.median(every)), 1)) if len(every) else 1.0


def _last_s(frames: Frames, signals: tuple[Signal, ...]) -> float | None:
    """The last telemetry row; without telemetry the last event."""
    if len(frames.times_N):
        return float(frames.times_N.max())
    return signals[-1].time_s if signals else None


class RecordingSource:
    """A recording replayed as a source: `collect(now_s)` gives the samples up to now_s that were not given before."""

    def __init__(self, recording: Recording) -> None:
        self._frames = recording.frames
        self._next = 0
        self._seen: set[tuple[float, int, int, int]] = set()

    def collect(self, now_s: float) -> list[Sample]:
        """Samples with their own time stamps at or before now_s, in time order, each once."""
        frames = self._frames
        end = int(np.searchsorted(frames.times_N, now_s, side="right"))
        rows, self._next = range(self._next, end), max(self._next, end)
        samples = []
        self._seen = {key for key in self._seen if rows and key[0] == frames.times_N[rows[0]]}
        for n in rows:
            machine, device = int(frames.machine_N[n]), int(frames.device_N[n])
            values = {}
            for k in np.flatnonzero(~np.isnan(frames.values_NK[n])):
                key = (float(frames.times_N[n]), machine, device, int(k))
                if key not in self._seen:
                    self._seen.add(key)
                    values[frames.metrics[k]] = float(frames.values_NK[n, k])
            name = frames.devices[device] if device >= 0 else None
            samples.append(Sample(float(frames.times_N[n]), frames.machines[machine], values, name))
        return samples

    def close(self) -> None:
        """Nothing is open."""
