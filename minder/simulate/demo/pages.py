"""`minder demo --serve`: the pages of what has just happened, open until Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

from minder.simulate.demo.service import service_beside

__all__ = ["keep_pages_open"]


def keep_pages_open(folder: Path, say: Callable[[str], None], wait: Callable[[], object] = threading.Event().wait) -> None:
    """Serve the ledger of a demo's folder on loopback, say link and token, and return at SIGINT or SIGTERM. Raises LabError if the
    service does not start. Main thread only."""

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = [(number, signal.signal(number, end)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        with service_beside(str(folder / "state" / "ledger.db"), folder / "service") as (url, token):
            say(f"the pages of this run: {url}/sign-in?next=/incidents")
            say(f"sign in with the token {token}; Ctrl-C closes the pages")
            wait()
    except KeyboardInterrupt:
        say("the pages are closed; `minder serve` opens them again on any ledger")
    finally:
        for number, handler in before:
            signal.signal(number, handler)
