"""Every receiver has a thread of its own: one that is down holds no other up."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from serve.notify.outbox import Outbox

__all__ = ["Outboxes"]


class Outboxes:
    """Start them, stop them; a step that is under way ends within its receiver's time-out."""

    def __init__(self, outboxes: Sequence[Outbox] = ()) -> None:
        self.outboxes = tuple(outboxes)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for outbox in self.outboxes:
            thread = threading.Thread(target=self._run, args=(outbox,), name=f"notify-{outbox.target.name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(25.0)
        for outbox in self.outboxes:
            outbox.sender.close()

    def _run(self, outbox: Outbox) -> None:
        while not self._stopping.is_set():
            self._stopping.wait(outbox.step())
