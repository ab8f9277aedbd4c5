"""All logs of this machine's jobs: those that the agent's options name, a Slurm job's output, and the files of a launcher's workers.

Steps are read from the first two: the launcher reads its workers' files itself. Lines are counted in all of them, since a job that
writes is a job that does something.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minder.edge.agent.slurm_log import SlurmOutputs
from minder.edge.agent.steplog import StepLog
from minder.edge.agent.tail import Tail
from minder.edge.exporters.jobs import JobProcess
from minder.edge.exporters.reading import Reading
from minder.model.errors import BadInputError

__all__ = ["JobLogs"]

_LOOK_S = 0.5
_FRESH_S = 5.0
_CHUNK_BYTES = 256 * 1024


class JobLogs:
    """paths: what `--log` names. pattern: the site's own for steps; a job's MINDER_STEP_PATTERN goes before it, for its own output."""

    def __init__(self, paths: Sequence[Path], pattern: str | None = None, slurm: SlurmOutputs | None = None) -> None:
        self._pattern = pattern
        self._given = [StepLog(path, pattern) for path in paths]
        self._slurm = SlurmOutputs() if slurm is None else slurm
        self._of_slurm: dict[Path, StepLog] = {}
        self._workers = _WorkerLines()
        self._ended_lines = 0  # of logs that are followed no more
        self._problem = ""

    @property
    def steps(self) -> list[StepLog]:
        """The logs in which steps are looked for."""
        return [*self._given, *self._of_slurm.values()]

    def start(self) -> None:
        for log in self._given:
            log.start()
        self._workers.start()

    def stop(self) -> None:
        for log in self.steps:
            log.stop()
        self._workers.stop()

    def forget(self) -> None:
        """The job began anew: its steps count from here."""
        for log in self.steps:
            log.forget()

    def follow(self, processes: Sequence[JobProcess], now_s: float) -> None:
        """The machine's processes now. Without --log the output of their Slurm jobs is followed."""
        self._workers.paths = tuple(dict.fromkeys(process.log for process in processes if process.log is not None))
        if self._given:
            return
        self._slurm.follow(processes, now_s)
        found = self._slurm.found()
        self._problem = next((output.problem for output in found.values() if output.problem), "")
        patterns = {process.slurm_job: process.step_pattern for process in processes}
        wanted = {path: patterns.get(job) or self._pattern for job, output in found.items() for path in output.paths}
        for path in [path for path in self._of_slurm if path not in wanted]:
            log = self._of_slurm.pop(path)
            log.stop()
            self._ended_lines += log.lines
        for path, pattern in wanted.items():
            if path not in self._of_slurm:
                self._of_slurm[path] = self._open(path, pattern)

    def _open(self, path: Path, pattern: str | None) -> StepLog:
        try:
            log = StepLog(path, pattern)
        except BadInputError as error:
            log = StepLog(path)
            log.problem = f"MINDER_STEP_PATTERN: {error}"
        log.start()
        return log

    def read(self) -> Reading:
        """job_log_lines_total; absent where no log is followed, or none could be looked at for seconds: a hanging file server is no
        quiet job."""
        reading = Reading()
        fresh_s = time.monotonic() - _FRESH_S
        if any(log.looked_s > fresh_s for log in self.steps) or self._workers.looked_s > fresh_s:
            reading.counter("job_log_lines", self._ended_lines + sum(log.lines for log in self.steps) + self._workers.lines)
        return reading

    def describe(self) -> list[dict[str, Any]]:
        """For GET /v1/health: each log with what was read in it."""
        found = [log.describe() for log in self.steps]
        return found or ([{"path": None, "lines": 0, "unnumbered": 0, "step": None, "problem": self._problem}] if self._problem else [])


class _WorkerLines:
    """Counts the lines that the workers of this machine's launchers write. One thread for all of them."""

    def __init__(self) -> None:
        self.paths: tuple[str, ...] = ()
        self.lines = 0
        self.looked_s = -math.inf  # when all of them were looked at last; never where there are none
        self._tails: dict[str, Tail] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="minder-worker-logs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def look(self) -> None:
        paths = self.paths
        for path in self._tails.keys() - set(paths):
            self._tails.pop(path).close()
        for path in paths:
            self._tails.setdefault(path, Tail(Path(path), _CHUNK_BYTES))
        self.lines += sum(len(tail.lines()) for tail in self._tails.values())
        if any(not tail.problem for tail in self._tails.values()):
            self.looked_s = time.monotonic()

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_S):
            self.look()
        for tail in self._tails.values():
            tail.close()
