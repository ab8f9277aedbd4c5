"""Short blocks of the documents, each given to what it is for: Python runs, YAML is read by the program whose file it is."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from minder.cli import main
from minder.config import load_config
from minder.diagnose.step_traces.meta import read_layout
from minder.ingest.sources.events import read_truths
from minder.model.clock import FakeClock
from minder.model.metrics import CATALOGUE
from minder.record.incidents import Ledger
from minder.wire.own_token import own_token
from minder.wire.token_files import tokens_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def block(load_file: Callable[[Path], ModuleType]) -> Callable[[str, str], str]:
    """The one block of a page that begins so."""

    def one(page: str, begin: str) -> str:
        (found,) = [
            block.text
            for block in load_file(Path(__file__).with_name("pages.py")).blocks(f"docs/{page}")
            if block.text.lstrip().startswith(begin)
        ]
        return str(found)

    return one


def run(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
    path = folder / f"script-{variables.get('RANK', '0')}.py"
    path.write_text(script, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(path)], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


GLOO = """
import os, time
import torch, torch.distributed as dist
rank = int(os.environ.get("RANK", "0"))
def begin():
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=rank, world_size=world_size)
"""


@pytest.mark.lab
def test_the_line_that_keeps_dumps_keeps_them(block: Callable[[str, str], str], tmp_path: Path) -> None:
    """docs/collectives.md: before the first process group."""
    pytest.importorskip("torch", reason="needs the torch extra: pip install 'minder-cluster[torch]'")
    wait = """
    begin()
    dist.all_reduce(torch.ones(4))
    end_s = time.monotonic() + 90
    while not os.path.exists(f"run/dumps/pid-{os.getpid()}"):
        assert time.monotonic() < end_s
        time.sleep(0.2)
    """
    done = run(block("collectives.md", "import minder") + GLOO + textwrap.dedent(wait), tmp_path, MINDER_RUN_DIR=str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("value", [pytest.param("1.0", marks=pytest.mark.release), "float('nan')"])
@pytest.mark.lab
def test_the_guard_of_the_quickstart_names_the_rank_that_computes_nonsense(
    block: Callable[[str, str], str], tmp_path: Path, value: str
) -> None:
    """docs/quickstart.md: a gradient that is a number changes nothing; of two ranks the one whose own is none raises."""
    pytest.importorskip("torch", reason="needs the torch extra: pip install 'minder-cluster[torch]'")
    model = "begin()\nddp_model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))\n"
    step = f"ddp_model(torch.tensor([[{value} if rank == 1 else 1.0, 1.0]])).sum().backward()\n"
    script = GLOO + model + block("quickstart.md", "from minder.edge.worker import") + step
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda rank: run(script, tmp_path, RANK=str(rank), WORLD_SIZE="2"), (0, 1))
    assert "NonFiniteGradient" not in first.stderr
    assert second.returncode == (0 if value == "1.0" else 1) and ("NonFiniteGradient" in second.stderr) == (value != "1.0"), second.stderr


def test_the_tokens_of_the_quickstart_are_those_that_its_job_and_its_machines_take(
    block: Callable[[str, str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/quickstart.md, "On several machines"."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(block("quickstart.md", 'name = "llm-70b"'))
    assert main(shlex.split(block("quickstart.md", "minder token machine").strip())[1:]) == 0
    endpoints = load_config(tmp_path / "job.toml").endpoints()
    assert [item.machine for item in endpoints] == ["node-0001", "node-0002", "node-0100"]
    for item in endpoints:
        own = own_token(tmp_path / "tokens" / item.machine, item.machine)
        assert item.agent is not None and item.launcher is not None and own is not None
        assert tokens_of(own) == (item.agent.token,) == (item.launcher.token,)
    assert len({item.agent.token for item in endpoints if item.agent}) == 3


def test_a_webhook_checks_its_signature_as_the_page_says(block: Callable[[str, str], str]) -> None:
    """docs/notices.md: the signature is made here by the page's words, not by our code."""
    now, secret = int(time.time()), "0123456789abcdef"
    notice = {"id": "n1", "incident": "llm-1", "what": "verdict", "job": "llm", "time": "2026-03-02T06:00:00Z", "text": "t"}
    body = json.dumps(notice).encode()
    mac = hmac.new(secret.encode(), f"{now}.".encode() + body, hashlib.sha256).hexdigest()
    first, _, second = block("notices.md", "from minder.record.api.notices").strip().rpartition("\n")
    names: dict[str, Any] = {"time": time, "secret": secret, "body": body}
    exec(first, {**names, "request": SimpleNamespace(headers={"Minder-Signature": f"t={now},v1={mac}"})})
    with pytest.raises(Exception, match=r"(?i)signature"):
        exec(first, {**names, "request": SimpleNamespace(headers={"Minder-Signature": f"t={now},v1={'0' * 64}"})})
    assert second.startswith("notice = Notice.model_validate_json(")


def test_alertmanager_takes_the_receiver_of_the_page(block: Callable[[str, str], str], tmp_path: Path) -> None:
    """docs/notices.md, "Take signals in"."""
    if shutil.which("amtool") is None:
        pytest.skip("needs amtool on the PATH (Debian: apt-get install prometheus-alertmanager)")
    path = tmp_path / "alertmanager.yml"
    path.write_text("route: {receiver: minder}\n" + block("notices.md", "receivers:"))
    done = subprocess.run(["amtool", "check-config", str(path)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_lines_of_the_tls_page(block: Callable[[str, str], str], tmp_path: Path) -> None:
    """docs/tls.md: the lines of one scrape job, with files that are there."""
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool on the PATH (Debian: apt-get install prometheus)")
    lines = textwrap.indent(block("tls.md", "scheme: https"), "    ")
    for name in re.findall(r"/etc/minder/([\w.]+)", lines):
        (tmp_path / name).write_text("")
    job = "scrape_configs:\n  - job_name: agents\n    static_configs: [{targets: ['10.0.0.11:9401']}]\n"
    (tmp_path / "prometheus.yml").write_text(job + lines.replace("/etc/minder/", f"{tmp_path}/"))
    command = ["promtool", "check", "config", "--syntax-only", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_layout_of_a_trace_is_read(block: Callable[[str, str], str], tmp_path: Path) -> None:
    """docs/step-traces.md: meta.yaml."""
    (tmp_path / "meta.yaml").write_text(block("step-traces.md", "dp_size:"))
    assert read_layout(tmp_path / "meta.yaml").world_size == 64


@pytest.mark.server("postgresql")
def test_a_truth_is_read_as_the_page_writes_it(block: Callable[[str, str], str], tmp_path: Path) -> None:
    file = tmp_path / "truth.json"
    file.write_text(block("recordings.md", '{"recording": "r0001", "fault"'), encoding="utf-8")
    (truth,) = read_truths(file)
    assert (truth.recording, truth.fault, truth.machine, truth.onset_s) == ("r0001", "hang", "node-0002", 1772431920.0)


def test_every_metric_that_minder_knows_stands_on_the_page_of_recordings() -> None:
    page = (ROOT / "docs/recordings.md").read_text(encoding="utf-8")
    assert [metric.name for metric in CATALOGUE if f"`{metric.name}`" not in page] == []


def test_the_ledger_in_postgresql_is_backed_up_as_the_page_says(block: Callable[[str, str], str], postgres: Any, tmp_path: Path) -> None:
    """docs/install.md, "Back up the ledger": what was written before is there after pg_restore into an empty database."""
    if shutil.which("pg_dump") is None or shutil.which("pg_restore") is None:
        pytest.skip("needs pg_dump and pg_restore on the PATH (Debian: apt-get install postgresql-client)")
    full, empty = postgres.new_database(), postgres.new_database()
    with contextlib.closing(Ledger(full, clock=FakeClock(1000.0))) as ledger:
        ledger.append("pause", {"all": True}, job="llm")
    line = block("install.md", "pg_dump").strip().replace("/backup/", f"{tmp_path}/")
    assert line.endswith(" minder")
    command = line.removesuffix("minder") + full.rpartition("/")[2]
    environment = {**os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(postgres.port), "PGUSER": "minder"}
    for typed in (command, f"pg_restore --dbname={empty.rpartition('/')[2]} {tmp_path}/minder-ledger.dump"):
        subprocess.run(["bash", "-c", typed], env=environment, check=True, timeout=120)
    with contextlib.closing(Ledger(empty)) as ledger:
        assert [event.kind for event in ledger.events()] == ["pause"]


def test_a_script_of_the_job_answers_a_replay_as_the_page_says(block: Callable[[str, str], str], tmp_path: Path) -> None:
    """docs/replay.md: the block in a script without torch, which is asked by the environment."""
    given = """
import sys
import minder

class build:
    def __init__(self, layers):
        self.layers = layers
    def parameters(self):
        return [b"as it stands"] * self.layers

def train(step, seed):
    print(step, seed)
"""
    wanted = {"MINDER_REPLAY": "2,7,4", "MINDER_REPLAY_FILE": str(tmp_path / "lines")}
    done = run(given + block("replay.md", "asked = minder.replay()") + "\nprint('trains as ever')\n", tmp_path, **wanted)
    assert (done.returncode, done.stdout.split()) == (0, ["1", "7", "2", "7"]), done.stderr
    words = [line.split()[0] for line in (tmp_path / "lines").read_text().splitlines()]
    assert words == ["begin", "1", "2"]
    assert "trains as ever" in run(given + block("replay.md", "asked = minder.replay()") + "\nprint('trains as ever')\n", tmp_path).stdout
