"""What the machine's memory was used for before the kernel ended a process for the lack of it (minder/edge/signals/oom.py).

Known are the samples of the last ten minutes: the training processes with all below them, and all that the machine uses. What grew within
one sampling interval and was ended in it is not seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import replace
from statistics import median
from typing import Any

from minder.edge.signals.oom import is_limited
from minder.model.evidence import Signal

__all__ = ["MemoryHistory"]

_KEPT_S = 600.0
_FEWEST = 30  # samples before anything is usual
_NEWEST = 5  # samples that the usual is not made of


class MemoryHistory:
    """Feed it every sample, and ask it about each kill. Sizes in bytes; None is a size that was not read.

    whole_machine: the cgroup whose limit is the machine's own, if the machine is one.
    """

    def __init__(self, whole_machine: str | None = None) -> None:
        self._whole_machine = None if whole_machine is None else "/" + whole_machine.strip("/")
        self._samples: deque[tuple[float, float, float]] = deque()  # time, tree, used
        self._pids: deque[frozenset[int]] = deque(maxlen=3)  # a victim may be gone from the newest

    def note(self, now_s: float, tree_bytes: float | None, used_bytes: float | None, pids: Collection[int]) -> None:
        """tree_bytes, pids: of the training processes and all below them. used_bytes: of all processes of the machine. A tree counts
        memory that it shares once for each process, so the rest may be less than nothing; how it grows is what counts."""
        self._pids.append(frozenset(pids))
        if tree_bytes is not None and used_bytes is not None:
            self._samples.append((now_s, tree_bytes, used_bytes - tree_bytes))
        while self._samples and now_s - self._samples[0][0] > _KEPT_S:
            self._samples.popleft()

    def explain(self, signal: Signal) -> Signal:
        """An oom signal with what is known of its moment; any other as it is."""
        if signal.data.get("what") != "oom":
            return signal
        known: dict[str, Any] = {"limited": is_limited(signal) and not self._is_own_limit(signal)}
        if any(signal.pid in pids for pids in self._pids):
            known["of_job"] = True  # of one that is not among them nothing is known: a worker may be younger than the last look
        before = [item for item in self._samples if item[0] <= signal.time_s]
        if len(before) >= _FEWEST:
            usual = before[:-_NEWEST]
            known["tree_bytes"] = max(tree for _, tree, _ in before[-_NEWEST:])
            known["tree_usual_bytes"] = median(tree for _, tree, _ in usual)
            known["others_grew_bytes"] = max(rest for _, _, rest in before[-_NEWEST:]) - median(rest for _, _, rest in usual)
        return replace(signal, data={**signal.data, **known})

    def _is_own_limit(self, signal: Signal) -> bool:
        return self._whole_machine is not None and f"oom_memcg={self._whole_machine}," in signal.message
