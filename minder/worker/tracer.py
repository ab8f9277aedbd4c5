"""The step tracer of a training loop: what each operation of a step took, in the schema that `minder whatif` reads.

    with minder.trace_step(step, dp_rank=dp, stage=pp) as trace:
        with trace.op("forward-compute", mb=0, mc=0):
            ...

One step in ten is traced, the same steps on every rank. In the others nothing is measured. A thread writes one line per operation to
`<folder>/trace-rank<RANK>-pid<pid>.jsonl`; the loop itself never touches the disk. Whatever goes wrong is counted in `lost()`.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TextIO

from minder.worker.pulse import default_run_dir

__all__ = ["flush", "is_sampled", "lost", "trace_step"]

_HASH, _SPAN = 2654435761, 2**32  # Knuth's: neighbouring steps are spread, so that nothing periodic in the job is always or never seen
_WAITING = 64  # traced steps that may wait for the disk; more are dropped
_LIMIT_BYTES = 256 * 2**20
_GOODBYE_S = 2.0
_Record = tuple[str, float, float, int, int]  # operation type, begin, end, microbatch, chunk

_lost = 0
_writer: _Writer | None = None


_ODD_VALUES = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)  # of a step, sample or place that is no such number


def is_sampled(step: int, sample: float) -> bool:
    """Whether a step is traced: decided by its number alone, so all ranks agree. sample: share of the steps, 0 to 1."""
    return (step * _HASH) % _SPAN < sample * _SPAN


def lost() -> int:
    """Traced steps or operations that could not be written, and were dropped in silence."""
    return _lost


def flush(timeout_s: float = _GOODBYE_S) -> bool:
    """Wait until all traced steps are written; False if the disk was too slow for that. Called at the end of the process."""
    writer = _writer
    return writer is None or writer.pid != os.getpid() or writer.finish(timeout_s)


class _Nothing:
    """A step, or an operation, that is not traced."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None


_NOTHING = _Nothing()


class _Operation:
    __slots__ = ("_begin_s", "_chunk", "_kind", "_microbatch", "_step")

    def __init__(self, step: trace_step, kind: str, microbatch: int, chunk: int) -> None:
        self._step, self._kind, self._microbatch, self._chunk = step, kind, microbatch, chunk
        self._begin_s = 0.0

    def __enter__(self) -> None:
        self._begin_s = self._step.now()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._step.add(self._kind, self._begin_s, self._step.now(), self._microbatch, self._chunk)


class trace_step:  # it reads as a word of the user's script: `with minder.trace_step(step) as trace:`
    """Trace one step of this rank, if it is one of the sampled. Never raises and never waits for a disk.

    dp_rank, stage: this rank's place in the job. sample: share of the steps. folder: where the files go (MINDER_TRACE_DIR, or `traces` in
    minder's run directory). synchronize: called before each reading of the clock in a traced step; on a GPU torch.cuda.synchronize, since
    kernels run later than the calls that launch them.
    """

    __slots__ = ("_base_s", "_folder", "_place", "_records", "_sample", "_step", "_synchronize")

    def __init__(
        self,
        step: int,
        dp_rank: int = 0,
        stage: int = 0,
        sample: float = 0.1,
        folder: str | os.PathLike[str] | None = None,
        synchronize: Callable[[], object] | None = None,
    ) -> None:
        self._step, self._place, self._sample, self._folder, self._synchronize = step, (dp_rank, stage), sample, folder, synchronize
        self._records: list[_Record] | None = None
        self._base_s = 0.0

    @property
    def traced(self) -> bool:
        return self._records is not None

    def op(self, kind: str, mb: int = -1, mc: int = -1) -> AbstractContextManager[None]:
        """One operation of the step: its type (docs/step-traces.md), microbatch and model chunk within the stage."""
        return _NOTHING if self._records is None else _Operation(self, kind, mb, mc)

    def now(self) -> float:
        """The clock for `add`: seconds, steady, near the machine's time."""
        if self._records is None:
            return 0.0
        try:
            if self._synchronize is not None:
                self._synchronize()
        except Exception:  # noqa: BLE001 - a failing device speaks up in the loop itself: counted, see lost()
            _count_lost()
            self._synchronize = None
        return self._base_s + time.perf_counter()

    def add(self, kind: str, begin_s: float, end_s: float, mb: int = -1, mc: int = -1) -> None:
        """An operation that is no block of code: an asynchronous transfer, from its launch to its wait. Times are `now()`'s."""
        if self._records is not None:
            self._records.append((kind, begin_s, end_s, mb, mc))

    def __enter__(self) -> trace_step:
        try:
            if (int(self._step) * _HASH) % _SPAN < self._sample * _SPAN:  # is_sampled: a call costs more here than what it does
                self._base_s = time.time() - time.perf_counter()
                self._records = []
        except _ODD_VALUES:  # tracing must not be able to end a training step: counted, see lost()
            _count_lost()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """A step that raised is not whole, and is not written."""
        if self._records is None:
            return
        records, self._records = self._records, None
        if not records or error is not None:
            return
        try:
            folder = self._folder or os.environ.get("MINDER_TRACE_DIR") or default_run_dir() / "traces"
            _this_writer(Path(folder)).put(_Step(int(self._step), int(self._place[0]), int(self._place[1]), records))
        except (*_ODD_VALUES, OSError, queue.Full):  # as in __enter__; RuntimeError also where no thread can be started
            _count_lost()


@dataclass(frozen=True, slots=True)
class _Step:
    step: int
    dp_rank: int
    stage: int
    records: list[_Record]


class _Writer:
    """One thread and one file for each process that traces."""

    def __init__(self, folder: Path) -> None:
        self.pid, self.folder = os.getpid(), folder
        self._rank = _environment_rank()
        self._waiting: queue.Queue[_Step] = queue.Queue(_WAITING)
        self._written = 0
        self._file: TextIO | None = None
        threading.Thread(target=self._drain, name="minder-tracer", daemon=True).start()

    def put(self, step: _Step) -> None:
        self._waiting.put_nowait(step)

    def finish(self, timeout_s: float) -> bool:
        until_s = time.monotonic() + timeout_s
        while self._waiting.unfinished_tasks and time.monotonic() < until_s:
            time.sleep(0.01)
        return not self._waiting.unfinished_tasks

    def _drain(self) -> None:
        while True:
            step = self._waiting.get()
            try:
                self._write(step)
            except Exception:  # noqa: BLE001 - a full or read-only disk must not stop the job: counted, see lost()
                _count_lost()
            finally:
                self._waiting.task_done()

    def _write(self, step: _Step) -> None:
        text = self._lines(step)
        if self._written + len(text) > _LIMIT_BYTES:
            raise OSError("the trace file is full")
        if self._file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = open(self.folder / f"trace-rank{self._rank}-pid{self.pid}.jsonl", "a", encoding="utf-8")  # noqa: SIM115
        self._file.write(text)
        self._file.flush()
        self._written += len(text)

    def _lines(self, step: _Step) -> str:
        """JSON by hand: this thread takes its time from the loop's."""
        who = f'{{"dp_rank": {step.dp_rank}, "stage": {step.stage}, "rank": {self._rank}, "step": {step.step}, "optype": '
        kinds = {kind: json.dumps(str(kind)) for kind in {record[0] for record in step.records}}
        return "".join(
            f'{who}{kinds[kind]}, "start_ts": {begin_s:.7f}, "duration": {max(0.0, end_s - begin_s):.7f},'
            f' "mc": {int(chunk)}, "mb_id": {int(microbatch)}, "gmc": -1}}\n'
            for kind, begin_s, end_s, microbatch, chunk in step.records
        )


def _this_writer(folder: Path) -> _Writer:
    """The writer of this very process: a forked child's thread is gone, its file is its own."""
    global _writer
    if _writer is None or _writer.pid != os.getpid() or _writer.folder != folder:
        if _writer is None:
            atexit.register(flush)
        _writer = _Writer(folder)
    return _writer


def _count_lost() -> None:
    global _lost
    _lost += 1


def _environment_rank() -> int:
    try:
        return int(os.environ["RANK"])
    except (KeyError, ValueError):
        return 0
