from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from minder.simulate.demo import pages


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_pages_are_open_with_a_link_until_a_signal_ends_them(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    @contextmanager
    def service(ledger: str, folder: Path) -> Iterator[tuple[str, str]]:
        assert ledger == str(tmp_path / "state" / "ledger.db")
        lines.append("open")
        try:
            yield "http://127.0.0.1:4711", "secret"
        finally:
            lines.append("closed")

    monkeypatch.setattr(pages, "service_beside", service)
    before = signal.getsignal(number)
    pages.keep_pages_open(tmp_path, lines.append, wait=lambda: os.kill(os.getpid(), number) or signal.pause())
    assert lines[0] == "open" and "http://127.0.0.1:4711/sign-in" in lines[1] and "secret" in lines[2] and lines[3] == "closed"
    assert signal.getsignal(number) is before
