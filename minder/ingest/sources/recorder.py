"""Writes a recording (docs/recordings.md) while a job runs. What was flushed survives a crash: as parts, which
`read_recording` reads too."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

import polars as pl

from minder.ingest.sources.events import Truth, read_events, signal_line, write_truth
from minder.ingest.sources.jobfile import RecordedJob, write_job
from minder.ingest.sources.parts import PartTable
from minder.ingest.sources.sightings import SightingRecorder
from minder.model.errors import RecordingError
from minder.model.evidence import Signal
from minder.model.metrics import CATALOGUE
from minder.model.observation import Observation
from minder.model.private import make_private, open_private, write_private
from minder.model.telemetry import Sample

__all__ = ["Recorder"]

_METRICS = tuple(metric.name for metric in CATALOGUE)
_SAME_S = 0.05  # one signal's time, corrected by two estimates of its machine's clock


class Recorder:
    """One recording being written. A context manager; `close` makes telemetry.parquet out of the parts.

    part_rows, part_s: a part is written after so many samples, or when the samples span so many seconds.
    resume: go on with the recording that an earlier process of the same run began, if there is one.
    Raises RecordingError if the folder already holds another recording or cannot be written.
    """

    def __init__(self, folder: str | Path, job: RecordedJob, part_rows: int = 5000, part_s: float = 15.0, *, resume: bool = False) -> None:
        self.folder = Path(folder)
        found = (self.folder / "job.toml").exists()
        if found and not resume:
            raise RecordingError(f"{self.folder} already holds a recording: name a new folder")
        self._ranks: dict[tuple[int, int], str] = {}
        self._held_s: dict[tuple[str | None, str], float] = {}  # newest signal by machine and kind that the folder held already
        self._table = PartTable(self.folder, "telemetry")
        try:
            make_private(self.folder)
            if found:
                self._take_up()
            else:
                open_private(self.folder / "job.toml", "a").close()
                write_job(self.folder / "job.toml", job)
            self._events = open_private(self.folder / "events.jsonl", "a", encoding="utf-8")
            self._sightings = SightingRecorder(self.folder, part_rows, part_s, resume=found)
        except OSError as error:
            raise RecordingError(f"{self.folder} cannot be written: {error.strerror}") from error
        self._part_rows, self._part_s = part_rows, part_s
        self._rows: list[Sample] = []
        self._closed = False

    def _take_up(self) -> None:
        """Where the earlier process stopped: its parts count on, a line that it wrote half is cut off, its signals come once."""
        self._table.take_up()
        events = self.folder / "events.jsonl"
        if events.exists():
            text = events.read_bytes()
            events.write_bytes(text[: text.rfind(b"\n") + 1])
            for signal in read_events(events):
                self._held_s[signal.machine, signal.kind] = signal.time_s
        places = self.folder / "ranks.json"
        if places.exists():
            self._ranks = {(item["generation"], item["rank"]): item["machine"] for item in json.loads(places.read_text())}

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def append_samples(self, samples: Iterable[Sample]) -> None:
        """Samples of any machines, in any order."""
        self._rows.extend(samples)
        if self._rows and (len(self._rows) >= self._part_rows or self._rows[-1].time_s - self._rows[0].time_s >= self._part_s):
            self.flush()

    def append_signals(self, signals: Iterable[Signal]) -> None:
        """Signals reach the file at once. A restarted controller hears again what the machines still remember: that is left out."""
        new = [item for item in signals if item.time_s > self._held_s.get((item.machine, item.kind), -math.inf) + _SAME_S]
        self._events.writelines(signal_line(signal) for signal in new)
        self._events.flush()

    def append_sighting(self, observation: Observation) -> None:
        """What a tick's rules were shown besides samples and signals: the fleet, the job's state, its connections."""
        self._sightings.append(observation)

    def note_ranks(self, generation: int, rank_machine: Mapping[int, str]) -> None:
        """Where a generation's ranks are; written to ranks.json at once."""
        self._ranks.update({(generation, rank): machine for rank, machine in rank_machine.items()})
        places = [{"rank": rank, "machine": name, "generation": gen} for (gen, rank), name in sorted(self._ranks.items())]
        _replace(self.folder / "ranks.json", json.dumps(places, indent=1) + "\n")

    def note_job(self, job: RecordedJob) -> None:
        """The job has other machines than at the start: one has joined its pool."""
        write_job(self.folder / "job.toml.tmp", job)
        (self.folder / "job.toml.tmp").rename(self.folder / "job.toml")

    def note_truth(self, truth: Truth) -> None:
        """What was done to the job, for `minder evaluate`; replay does not read it."""
        write_truth(self.folder / "truth.json", [truth], single=True)

    def flush(self) -> None:
        """Write the samples so far as one part."""
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        self._table.write(_table(rows))

    def close(self) -> None:
        """Write what is left and put the parts together. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self.flush()
        self._events.close()
        self._sightings.close()
        self._table.close()


def _table(samples: list[Sample]) -> pl.DataFrame:
    """Wide rows; only the metrics that these samples have become columns."""
    present = {name for sample in samples for name in sample.values}
    columns: dict[str, pl.Series] = {
        "timestamp": pl.Series([round(sample.time_s * 1000) for sample in samples], dtype=pl.Int64).cast(pl.Datetime("ms", "UTC")),
        "machine": pl.Series([sample.machine for sample in samples], dtype=pl.String),
    }
    if any(sample.device is not None for sample in samples):
        columns["device"] = pl.Series([sample.device for sample in samples], dtype=pl.String)
    for name in _METRICS:
        if name in present:
            columns[name] = pl.Series([sample.values.get(name) for sample in samples], dtype=pl.Float64)
    return pl.DataFrame(columns)


def _replace(path: Path, text: str) -> None:
    hidden = path.with_name(path.name + ".tmp")
    write_private(hidden, text)
    hidden.rename(path)
