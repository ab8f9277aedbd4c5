"""What docs/service.md and docs/notices.md say to type is typed, block after block, at a real service whose ledger has what they name."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import polars as pl
import pytest
import uvicorn

from minder.cli import main
from minder.model.clock import FakeClock
from minder.model.decision import Decision, Price
from minder.record.incidents import Ledger, kinds
from minder.record.store.tokens import TokenRecord, new_id
from serve.app import build_app
from serve.settings import Settings
from serve.state import open_service

PAGE = Path(__file__).resolve().parents[2] / "docs" / "service.md"
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUESTION = "evict-3f0a9c41d2be"
# A refusal of the service is a failure of the line; the stream of events never ends by itself.
SETTING = """
set -euo pipefail
curl() {
    case "$*" in
        *events/stream*) command curl --fail-with-body --max-time 1 "$@" || [ $? = 28 ] ;;
        *) command curl --fail-with-body "$@" ;;
    esac
}
uuidgen() { cat /proc/sys/kernel/random/uuid; }
minder() { "$PYTHON" -m minder "$@"; }
"""


@pytest.fixture
def site(tmp_path: Path, load_file: Callable[[Path], ModuleType]) -> Iterator[SimpleNamespace]:
    """A service, an operator's token, a recording, and the incident and question of the page."""
    past = load_file(PAGE.parents[1] / "tests" / "serve" / "conftest.py")
    now_s = time.time()
    with Ledger(tmp_path / "ledger.db", clock=FakeClock(now_s)) as ledger:
        assert past.write_past(ledger, job="llm-70b", begin_s=now_s - 1000.0) == "llm-70b-1"
        verdict = past.verdict_of("m1", now_s - 50.0)
        incident = ledger.open_incident(verdict, job="llm-70b", time_s=now_s - 50.0)
        decision = Decision(QUESTION, now_s - 49.0, "evict", ("m1",), "act", "", verdict, Price(1.0, 9.0), ("s1",))
        asked = {"decision": decision, "until_s": now_s + 6000.0, "on_timeout": "page", "generation": 2, "incidents": [incident]}
        ledger.append_once(kinds.APPROVAL_ASKED, asked, job="llm-70b", incident=incident, operation_id=QUESTION)
    assert main(["simulate", "plain", "--out", str(tmp_path / "sets"), "--seed", "1", "--count", "1"]) == 0
    service = open_service(Settings(str(tmp_path / "ledger.db")))
    token = service.tokens.create(TokenRecord(new_id(), "alice", "operator", 0.0, "root"))
    (tmp_path / "token").write_text(token)
    (tmp_path / "token").chmod(0o600)
    server = uvicorn.Server(uvicorn.Config(build_app(service), port=0, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    (recording,) = [path.parent for path in (tmp_path / "sets").rglob("job.toml")]
    (recording / "events.jsonl").touch()
    telemetry = pl.read_parquet(recording / "telemetry.parquet")
    soon = telemetry.filter(pl.col("timestamp") < pl.col("timestamp").min() + pl.duration(minutes=2))
    soon.write_parquet(recording / "telemetry.parquet")  # a busy machine needs its time for the rest
    yield SimpleNamespace(folder=tmp_path, url=url, token=token, recording=recording)
    server.should_exit = True
    thread.join(30)
    service.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl on the PATH (Debian: apt-get install curl)")
@pytest.mark.lab
def test_every_line_of_the_page_does_what_it_says(site: SimpleNamespace) -> None:
    blocks = [block for name in ("service.md", "notices.md") for block in SHELL.findall(PAGE.with_name(name).read_text(encoding="utf-8"))]
    assert len(blocks) >= 8
    words = {
        "minder_...": site.token,
        "http://127.0.0.1:9400": site.url,
        "https://minder.example.org": site.url,
        "https://other.example.org": site.url,
        "~/.config/minder.token": str(site.folder / "token"),
        "other.token": str(site.folder / "token"),
        "node-0002": "m2",
        "node-0003": "s1",
        "node-0007": "m1",
        "cd RECORDING": f"cd {site.recording}",
        "cd STACKS": f"cd {PAGE.parents[1] / 'datasets' / 'stacks' / 'stopped_rank'}",
        "cd COLLECTIVES": f"cd {PAGE.parents[1] / 'datasets' / 'hang' / 'collectives'}",
    }
    script = f"PYTHON={sys.executable}\n" + SETTING + "\n".join(blocks)
    for said, meant in words.items():
        assert said in script, f"the page no longer says {said}"
        script = script.replace(said, meant)
    done = subprocess.run(["bash", "-c", script], cwd=site.folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (site.folder / "vendor.zip").read_bytes()[:2] == b"PK"
    with Ledger(site.folder / "ledger.db") as ledger:
        told = {event.kind for event in ledger.events() if event.payload.get("by") == "alice"}
    assert told >= {kinds.PAUSE, kinds.UNPAUSE, kinds.OUTCOME, kinds.UNBARRED}


@pytest.mark.lab
def test_the_client_of_the_page_asks_a_real_service(site: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    """Up to the first event that it follows: the stream has no end."""
    (text,) = [text for text in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S) if "Client(" in text]
    datasets = PAGE.parents[1] / "datasets"
    words = {
        "http://127.0.0.1:9400": site.url,
        '"recordings/mine"': repr(str(site.recording)),
        '"dumps/stacks"': repr(str(datasets / "stacks" / "stopped_rank")),
        '"dumps/collectives"': repr(str(datasets / "hang" / "collectives")),
    }
    for said, meant in words.items():
        assert said in text, f"the page no longer says {said}"
        text = text.replace(said, meant)
    going = threading.Event()
    with Ledger(site.folder / "ledger.db") as ledger:

        def go_on() -> None:
            while not going.wait(0.5):
                ledger.append(kinds.PAUSE, {"all": True, "reason": "something happens"}, job="llm-70b")

        events = threading.Thread(target=go_on)
        events.start()
        try:
            exec(text.rstrip() + "; break\n", {"token": site.token})
        finally:
            going.set()
            events.join()
    opened, _, captured, event = capsys.readouterr().out.splitlines()
    assert opened.startswith("llm-70b-2 ('m1',)") and captured.endswith("(2,)") and "llm-70b" in event
