"""The peers of a dead rank die of it within two seconds: of their broken collective, or as an engine ends what is left of a job.

A rank whose peer is gone raises (gloo: "Connection closed by peer") and takes its interpreter down, which takes from a tenth of a second
to more than two. Who is not gone after half a second gets what torchrun (which looks every tenth of a second) and Slurm send to the peers
of a dead rank: SIGTERM. Later would be too late: the controller acts a second after the first death, and who is ended by it did not die.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence

from minder.model.errors import LabError
from minder.simulate.lab.machine import LabMachine
from minder.simulate.lab.record import start_ticks
from minder.simulate.lab.workers import TrainingWorker, training_workers

__all__ = ["Cascade"]

_PATIENCE_S, _TERM_S = 0.5, 0.7
_GIVE_UP_S = 10.0  # a signal takes effect when the process next leaves the kernel


class Cascade:
    """Made before the first death: every machine that trains in the victim's job on `machines` is its peer."""

    def __init__(self, machines: Sequence[LabMachine], victim: TrainingWorker) -> None:
        found: list[TrainingWorker] = []
        for machine in machines:
            with contextlib.suppress(LabError):  # a standby trains nothing
                found += training_workers(machine)
        self._started = {peer.pid: start_ticks(peer.pid) for peer in found if peer.job == victim.job and peer.pid != victim.pid}

    def follow(self) -> str:
        """Wait until all are gone, and see to it; how many died, and how fast, in words. Raises LabError if one cannot be ended."""
        begun_s = time.monotonic()
        slow = self._wait(begun_s + _PATIENCE_S)
        for number, until_s in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, _GIVE_UP_S)):
            for pid in self._alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            self._wait(begun_s + until_s)
        if stubborn := self._alive():
            raise LabError(f"processes {stubborn} do not die of SIGKILL")
        ended = f", {len(slow)} of them by SIGTERM after {_PATIENCE_S:g} s" if slow else ""
        count = len(self._started)
        return f"its {'only peer' if count == 1 else f'{count} peers'} died of it within {time.monotonic() - begun_s:.1f} s{ended}"

    def _wait(self, end_s: float) -> list[int]:
        """Peers that still live when all are gone or the time has come."""
        while (left := self._alive()) and time.monotonic() < end_s:
            time.sleep(0.01)
        return left

    def _alive(self) -> list[int]:
        return [pid for pid, ticks in self._started.items() if ticks is not None and start_ticks(pid) == ticks]
