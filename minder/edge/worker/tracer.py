"""The step tracer of a training loop: what each operation of a step took, in the schema that `minder whatif` reads.

    with minder.trace_step(step, dp_rank=dp, stage=pp) as trace:
        with trace.op("forward-compute", mb=0, mc=0):
            ...

One step in ten is traced, the same steps on every rank. In the others nothing is measured and nothing is made: they share one object that
does nothing. The loop itself never touches the disk and never wakes anybody: a thread looks once a second and writes one line per operation
to `<folder>/trace-rank<RANK>-pid<pid>.jsonl`. Whatever goes wrong is counted in `lost()`.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import IO

from minder.edge.worker.pulse import default_run_dir
from minder.model.private import make_private, open_private

__all__ = ["StepTrace", "flush", "is_sampled", "lost", "trace_step"]

_HASH, _SPAN = 2654435761, 2**32  # Knuth's: neighbouring steps are spread, so that nothing periodic in the job is always or never seen
_EVERY_S = 1.0  # between two looks of the writing thread
_WAITING, _MANY = 64, 32  # traced steps that may wait for the disk; with so many the thread is woken, more than may wait are dropped
_LIMIT_BYTES = 256 * 2**20
_GOODBYE_S = 2.0
_Folder = str | os.PathLike[str] | None
_Record = tuple[str, float, float, int, int]  # operation type, begin, end, microbatch, chunk
_Said = tuple[int, int, int, _Folder, int]  # step, dp_rank, stage and folder, as the script gave them; the rank at that moment
_Step = tuple[_Said, list[_Record]]

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
    return writer is None or writer.finish(timeout_s)


def trace_step(
    step: int,
    dp_rank: int = 0,
    stage: int = 0,
    sample: float = 0.1,
    folder: _Folder = None,
    synchronize: Callable[[], object] | None = None,
) -> StepTrace:
    """Trace one step of this rank, if it is one of the sampled: `with trace_step(step) as trace:`. Never raises and never waits for a disk.

    dp_rank, stage: this rank's place in the job. sample: share of the steps. folder: where the files go (MINDER_TRACE_DIR, or `traces` in
    minder's run directory). synchronize: called before each reading of the clock in a traced step; on a GPU torch.cuda.synchronize, since
    kernels run later than the calls that launch them.
    """
    try:
        if (int(step) * _HASH) % _SPAN < sample * _SPAN:  # is_sampled: a call costs more here than what it does
            return _Traced((step, dp_rank, stage, folder, _environment_rank()), synchronize)
    except _ODD_VALUES:  # tracing must not be able to end a training step: counted, see lost()
        _count_lost()
    return _UNTRACED


class _Nothing:
    """An operation that is not traced."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None


_NOTHING = _Nothing()


class StepTrace:
    """One step, for the loop to report its operations. This very one is not traced: what it gets is forgotten."""

    __slots__ = ()

    @property
    def traced(self) -> bool:
        return False

    def op(self, kind: str, mb: int = -1, mc: int = -1) -> AbstractContextManager[None]:
        """One operation of the step: its type (docs/step-traces.md), microbatch and model chunk within the stage."""
        return _NOTHING

    def now(self) -> float:
        """The clock for `add`: seconds, steady, near the machine's time."""
        return 0.0

    def add(self, kind: str, begin_s: float, end_s: float, mb: int = -1, mc: int = -1) -> None:
        """An operation that is no block of code: an asynchronous transfer, from its launch to its wait. Times are `now()`'s."""

    def __enter__(self) -> StepTrace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None


_UNTRACED = StepTrace()


class _Operation:
    __slots__ = ("_begin_s", "_chunk", "_kind", "_microbatch", "_step")

    def __init__(self, step: _Traced, kind: str, microbatch: int, chunk: int) -> None:
        self._step, self._kind, self._microbatch, self._chunk = step, kind, microbatch, chunk
        self._begin_s = 0.0

    def __enter__(self) -> None:
        self._begin_s = self._step.now()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._step.add(self._kind, self._begin_s, self._step.now(), self._microbatch, self._chunk)


class _Traced(StepTrace):
    """One of the sampled steps."""

    __slots__ = ("_base_s", "_records", "_said", "_synchronize")

    def __init__(self, said: _Said, synchronize: Callable[[], object] | None) -> None:
        self._said, self._synchronize = said, synchronize
        self._records: list[_Record] = []
        self._base_s = time.time() - time.perf_counter()

    @property
    def traced(self) -> bool:
        return True

    def op(self, kind: str, mb: int = -1, mc: int = -1) -> AbstractContextManager[None]:
        return _Operation(self, kind, mb, mc)

    def now(self) -> float:
        if self._synchronize is not None:
            try:
                self._synchronize()
            except Exception:  # noqa: BLE001 - a failing device speaks up in the loop itself: counted, see lost()
                _count_lost()
                self._synchronize = None
        return self._base_s + time.perf_counter()

    def add(self, kind: str, begin_s: float, end_s: float, mb: int = -1, mc: int = -1) -> None:
        self._records.append((kind, begin_s, end_s, mb, mc))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """A step that raised is not whole, and is not written."""
        if error is not None or not self._records:
            return
        try:
            (_writer or _start_writer()).put((self._said, self._records))
        except RuntimeError:  # no more threads: counted, see lost()
            _count_lost()


class _Writer:
    """One thread for each process that traces, and one file, or as many as the script names folders."""

    def __init__(self) -> None:
        self._waiting: deque[_Step] = deque()
        self._wake = threading.Event()
        self._path: Path | None = None
        self._file: IO[str] | None = None
        self._written = 0
        threading.Thread(target=self._drain, name="minder-tracer", daemon=True).start()

    def put(self, step: _Step) -> None:
        """Without a lock, and without a system call but where the thread falls behind."""
        waiting = len(self._waiting)
        if waiting >= _WAITING:
            _count_lost()
            return
        self._waiting.append(step)
        if waiting >= _MANY:
            self._wake.set()

    def finish(self, timeout_s: float) -> bool:
        until_s = time.monotonic() + timeout_s
        while self._waiting and time.monotonic() < until_s:
            self._wake.set()
            time.sleep(0.01)
        return not self._waiting

    def _drain(self) -> None:
        while True:
            self._wake.wait(_EVERY_S)
            self._wake.clear()
            while self._waiting:
                batch = self._next_batch()
                try:
                    self._write(batch)
                except (OSError, ValueError, TypeError):  # a full disk, a folder that is none: counted, see lost()
                    _count_lost(len(batch))
                for _ in batch:
                    self._waiting.popleft()

    def _next_batch(self) -> list[_Step]:
        """What goes into one file. It goes on waiting until it is written: what waits is what may be lost."""
        waiting = [self._waiting[place] for place in range(len(self._waiting))]
        place = waiting[0][0][3:]
        return list(takewhile(lambda step: step[0][3:] == place, waiting))

    def _write(self, batch: Sequence[_Step]) -> None:
        text = "".join(_lines(step) for step in batch)
        _, _, _, folder, rank = batch[0][0]
        file = self._open(Path(folder or os.environ.get("MINDER_TRACE_DIR") or default_run_dir() / "traces"), rank)
        if self._written + len(text) > _LIMIT_BYTES:
            raise OSError("the trace file is full")
        file.write(text)
        file.flush()
        self._written += len(text)

    def _open(self, folder: Path, rank: int) -> IO[str]:
        """A file for each rank that this process has been: `minder.run` may give it another one."""
        path = folder / f"trace-rank{rank}-pid{os.getpid()}.jsonl"
        if self._file is None or path != self._path:
            before, self._file = self._file, None
            if before is not None:
                before.close()
            make_private(folder)
            self._file = open_private(path, "a", encoding="utf-8")
            self._path, self._written = path, os.fstat(self._file.fileno()).st_size
        return self._file


def _lines(step: _Step) -> str:
    """JSON by hand: the thread takes its time from the loop's. "" for a step whose numbers are none: counted."""
    (number, dp_rank, stage, _, rank), records = step
    try:
        who = f'{{"dp_rank": {int(dp_rank)}, "stage": {int(stage)}, "rank": {rank}, "step": {int(number)}, "optype": '
        kinds = {kind: json.dumps(str(kind)) for kind in {record[0] for record in records}}
        return "".join(
            f'{who}{kinds[kind]}, "start_ts": {begin_s:.7f}, "duration": {max(0.0, end_s - begin_s):.7f},'
            f' "mc": {int(chunk)}, "mb_id": {int(microbatch)}, "gmc": -1}}\n'
            for kind, begin_s, end_s, microbatch, chunk in records
        )
    except _ODD_VALUES:
        _count_lost()
        return ""


def _start_writer() -> _Writer:
    global _writer
    atexit.register(flush)
    _writer = _Writer()
    return _writer


def _forget_writer() -> None:
    """In a forked child: the thread is gone, and the file is the parent's."""
    global _writer
    _writer = None


os.register_at_fork(after_in_child=_forget_writer)


def _count_lost(count: int = 1) -> None:
    global _lost
    _lost += count


def _environment_rank() -> int:
    try:
        return int(os.environ["RANK"])
    except (KeyError, ValueError):
        return 0
