"""How often the connections are looked at in one capture, and what it shows of a log."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from minder.edge.agent import capture as module
from minder.edge.agent.capture import capture, parse_request
from minder.edge.exporters.jobs import JobProcess

NO_KERNEL_LOG = Path(os.devnull)
ME = [JobProcess(os.getpid(), "j", 0)]


def looks(**body: Any) -> list[float]:
    answer = asyncio.run(capture("m0", ME, parse_request({"what": ["flows"], **body}), NO_KERNEL_LOG))
    assert answer["late"] == []
    return sorted({flow["time_s"] for flow in answer["flows"]})


def test_ten_looks_a_tenth_of_a_second_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        times_s = looks(samples=10, interval_s=0.1)
    assert len(times_s) >= 5 and times_s[-1] - times_s[0] < 1.5


def test_looks_that_cost_much_are_fewer_and_never_less_than_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at 50 ms of a core: the next one follows half a second later, and the answer does not come later for it."""
    real = module._look
    monkeypatch.setattr(module, "_look", lambda exporter, processes, fresh: (real(exporter, processes, fresh)[0], 0.05))
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        begun_s = time.monotonic()
        times_s = looks(samples=10, interval_s=0.1)
        assert 2 <= len(times_s) <= 4 and time.monotonic() - begun_s < 2.0
        assert len(looks(samples=2, interval_s=0.01)) == 2


def test_a_progress_bar_does_not_push_the_last_words_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"before {n}\n" for n in range(5)) + "".join(f"\r {n}/900 [00:10<05:12, 1.25it/s]" for n in range(900)))
    asked = parse_request({"what": ["logs"]})
    answer = asyncio.run(capture("m0", [JobProcess(os.getpid(), "j", 0, log=str(log))], asked, NO_KERNEL_LOG))
    assert answer["logs"] == {"rank0": [*(f"before {n}" for n in range(5)), " 899/900 [00:10<05:12, 1.25it/s]"]}
