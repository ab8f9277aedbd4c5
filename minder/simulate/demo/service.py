"""The service on loopback for as long as a block lasts, with a token for its opener."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from minder.model.errors import LabError
from minder.model.private import make_private, open_private
from minder.record.store.tokens import TokenRecord, TokenStore, new_id

__all__ = ["service_beside"]

_START_LIMIT_S = 120.0


@contextmanager
def service_beside(ledger: str, folder: Path, role: str = "operator") -> Iterator[tuple[str, str]]:
    """`minder serve` on this ledger; gives its URL and a token of this role. Raises LabError if it does not start."""
    make_private(folder)
    store = TokenStore(ledger)
    token = store.create(TokenRecord(new_id(), "notebook", role, time.time(), "notebook"))
    store.close()
    log = folder / "service.log"
    command = [sys.executable, "-m", "minder", "serve", "--listen", "127.0.0.1:0", "--ledger", ledger]
    with open_private(log, encoding="utf-8") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output)
    try:
        yield _address(log, process), token
    finally:
        process.terminate()
        try:
            process.wait(30.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    end_s = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < end_s and process.poll() is None:
        for word in log.read_text(encoding="utf-8").split():
            if word.startswith("http://127.0.0.1:"):
                return word.rstrip(",").removesuffix("/v1")
        time.sleep(0.1)
    raise LabError(f"the service did not start: see {log}")
