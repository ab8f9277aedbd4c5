"""A client that a generator writes from the contract alone, tried against a real service by a program that knows nothing else of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minder.record.incidents import Ledger
from serve.app import build_app
from serve.settings import Settings
from serve.state import open_service
from tests.serve.conftest import write_past
from tests.serve.test_openapi import OPERATIONS
from tests.serve.test_run import make_token, wait_for_address

pytestmark = pytest.mark.lab
NOT_GENERATED = {"append_rows"}  # rows of NDJSON: the generator knows no such body
CALLS = """
import sys
from minder_client import AuthenticatedClient
from minder_client.api.incidents import list_incidents, show_incident
from minder_client.api.machines import show_machine
from minder_client.api.pauses import list_pauses, start_pause
from minder_client.models import PauseRequest, PauseRequestScope

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2])
(incident,) = list_incidents.sync(client=client).items
print(incident.id, incident.state)
shown = show_incident.sync(incident.id, client=client)
print(shown.verdict.machines, len(shown.decisions), len(shown.timeline) > 3)
print(show_machine.sync("m2", client=client).incident)
order = PauseRequest(scope=PauseRequestScope.JOB, target="llm", reason="a look", seconds=60)
start_pause.sync(client=client, body=order, idempotency_key="once")
start_pause.sync(client=client, body=order, idempotency_key="once")
print([(pause.scope, pause.target, pause.reason) for pause in list_pauses.sync(client=client).items])
missing = show_incident.sync_detailed("no-such-incident", client=client)
print(missing.status_code.value, missing.parsed.detail)
"""


@pytest.fixture(scope="module")
def generator() -> str:
    told = os.environ.get("MINDER_CLIENT_GENERATOR")
    program = shutil.which(told or "openapi-python-client")
    if program is None:
        pytest.skip("needs openapi-python-client, or its path in MINDER_CLIENT_GENERATOR (.ci/client-generator)")
    return program


@pytest.fixture(scope="module")
def client(generator: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated package, in a folder of its own."""
    folder = tmp_path_factory.mktemp("generated")
    service = open_service(Settings(str(folder / "empty.db")))
    document: dict[str, Any] = build_app(service).openapi()
    service.close()
    (folder / "openapi.json").write_text(json.dumps(document))
    words = ["generate", "--path", str(folder / "openapi.json"), "--output-path", str(folder / "minder_client"), "--meta", "none"]
    done = subprocess.run([generator, *words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return folder / "minder_client"


def test_every_operation_is_a_function(client: Path) -> None:
    found = {path.stem for path in (client / "api").glob("*/*.py")} - {"__init__"}
    assert set(OPERATIONS) - found == NOT_GENERATED


def test_it_reads_orders_and_is_refused(generator: str, client: Path, tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.db")
    with Ledger(ledger) as opened:
        incident = write_past(opened)
    token, log = make_token(ledger), tmp_path / "log"
    with log.open("w") as output:
        serve = [sys.executable, "-m", "minder", "serve", "--listen", "127.0.0.1:0", "--ledger", ledger]
        process = subprocess.Popen(serve, stderr=output, stdout=subprocess.DEVNULL)
    try:
        python = Path(generator).resolve().with_name("python")  # the generated code needs what its generator has: httpx and attrs
        words = [str(python), "-c", CALLS, wait_for_address(log, process), token]
        done = subprocess.run(words, cwd=client.parent, capture_output=True, text=True, timeout=120, check=False)
    finally:
        process.terminate()
        process.wait(30)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(incident) and lines[1:4] == ["['m2'] 1 True", incident, "[('job', 'llm', 'a look')]"]
    assert lines[4].startswith("404 ") and "no-such-incident" in lines[4]
