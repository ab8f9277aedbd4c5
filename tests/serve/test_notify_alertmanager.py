"""A real Alertmanager: an alert stands, is told on, escalates, and is resolved when the incident closes."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.model.clock import SystemClock
from minder.model.evidence import Verdict
from minder.record.incidents import Ledger
from minder.record.store.events import EventStore
from serve.notify.outbox import Outbox
from serve.notify.send import Sender
from serve.notify.targets import Target

DEADLINE_S = 90.0


def wait_for(ready: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            if found := ready():
                return found
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("it did not come about in time")


class RealAlertmanager:
    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.url = f"http://{self.address}"
        self._folder = folder
        (folder / "alertmanager.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = str(shutil.which("prometheus-alertmanager"))
        flags = [
            f"--config.file={self._folder / 'alertmanager.yml'}", f"--storage.path={self._folder / 'data'}",
            f"--web.listen-address={self.address}", "--cluster.listen-address=",
        ]  # fmt: skip
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen([program, *flags], stdout=log, stderr=log)
        wait_for(lambda: httpx.get(f"{self.url}/-/ready").is_success)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def alerts(self) -> list[dict[str, str]]:
        """Labels of those that stand."""
        return [item["labels"] for item in httpx.get(f"{self.url}/api/v2/alerts").json()]


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[RealAlertmanager]:
    server = RealAlertmanager(tmp_path)
    yield server
    server.stop()


@pytest.mark.server("prometheus-alertmanager")
def test_alerts_come_when_it_is_up_again_and_end_with_the_incident(alertmanager: RealAlertmanager, tmp_path: Path) -> None:
    def verdict(kind: Any, tier: Any) -> Verdict:
        return Verdict(time.time(), kind, tier, ("m5",), "stall", 0.9, time.time() - 5.0)

    with Ledger(tmp_path / "ledger.db") as ledger:
        store = EventStore(ledger.location)
        target = Target(name="am", kind="alertmanager", url=alertmanager.url)
        outbox = Outbox(target, Sender(target), store, SystemClock())
        outbox.step()
        name = ledger.open_incident(verdict("machine", "page"), job="llm")
        assert outbox.step() == 1.0 and "does not answer" in outbox.last_error
        alertmanager.start()
        outbox.step()
        (labels,) = wait_for(alertmanager.alerts)
        assert (labels["machine"], labels["incident"], labels["severity"]) == ("m5", name, "warning")
        ledger.open_incident(verdict("machine", "evict"), job="llm")
        outbox.step()
        wait_for(lambda: [item["severity"] for item in alertmanager.alerts()] == ["critical"])
        ledger.open_incident(verdict("recovered", "watch"), job="llm")
        outbox.step()
        wait_for(lambda: alertmanager.alerts() == [])
        store.close()
