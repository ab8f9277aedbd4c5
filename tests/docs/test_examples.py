"""Code in the documents: a block with a file's name runs as that file, after the blocks before it; any other is at least Python.
Configuration is taken by what reads it; what dumps and traces makes what the commands then read."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from minder.config import JobConfig
from minder.ingest.sources.jobfile import read_job
from minder.ingest.sources.mapping import MetricMapping
from minder.offline.training.recipe import TrainingRecipe
from serve.settings_file import ServiceFile

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w+)(?: title=\"([\w./-]+)\")?[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


_JOB: dict[str, Any] = {"name": "llm-70b", "machines": [{"name": "node-0001", "agent": "http://10.0.0.11:9401"}]}
_PROVIDER = {"issuer": "https://id.example.org", "audience": "minder", "roles": {"ml": "viewer"}}


def blocks(page: Path) -> list[tuple[str, str | None, str]]:
    """(language, file name if any, text) of every fenced block."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(language, name or None, textwrap.dedent(text)) for _, language, name, text in found]


def with_files() -> list[Path]:
    return [page for page in PAGES if any(name for _, name, _ in blocks(page))]


def test_the_pages_on_adding_something_have_code_that_runs() -> None:
    assert {page.name for page in with_files()} >= {f"adding-{what}.md" for what in ("a-source", "a-detector", "a-signal", "an-actuator")}


@pytest.mark.parametrize("page", with_files(), ids=lambda page: page.stem)
def test_files_of_a_page_run_as_they_stand(page: Path, tmp_path: Path) -> None:
    """All files are written first, then the Python ones run in the page's order, in their folder."""
    files = [(language, name, text) for language, name, text in blocks(page) if name]
    for _, name, text in files:
        (tmp_path / str(name)).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / str(name)).write_text(text, encoding="utf-8")
    for language, name, _ in files:
        if language == "python":
            command = [sys.executable, "-c", "import runpy, sys; sys.path[:0] = [sys.argv[1], '.']; runpy.run_path(sys.argv[2])"]
            answer = subprocess.run(
                [*command, str(ROOT), str(name)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
            )
            assert answer.returncode == 0, f"{page.name}, {name}: {answer.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_in_documents_is_python(page: Path) -> None:
    for language, _, text in blocks(page):
        if language == "python":
            ast.parse(text)


def test_the_script_of_the_quickstart_trains(tmp_path: Path) -> None:
    """The block under "Your own script", with a loop body of one line."""
    (text,) = [text for language, _, text in blocks(ROOT / "docs/quickstart.md") if language == "python" and "minder.run(main)" in text]
    script = "steps = 3\n" + text.replace("        ...\n", "        loss = 1.0 / (step + 1)\n")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-c", "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path('train.py', run_name='__main__')"]
    answer = subprocess.run([*command, str(ROOT)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert answer.returncode == 0, answer.stderr


def _tables() -> list[Any]:
    return [
        pytest.param(page.name, text, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, (language, _, text) in enumerate(blocks(page))
        if language == "toml"
    ]


def _accepts(model: type[BaseModel], data: dict[str, Any]) -> str | None:
    """None if it does, else why not."""
    try:
        model.model_validate(data)
    except ValidationError as error:
        return str(error)
    return None


def _as_job(data: dict[str, Any]) -> dict[str, Any]:
    """What a page leaves out of a job."""
    around = {key: value for key, value in _JOB.items() if key not in data and not ("engine" in data and key == "machines")}
    return {**around, **data}


def _as_service(data: dict[str, Any]) -> dict[str, Any]:
    if "oidc" in data:
        data = {"public_url": "https://minder.example.org", **data, "oidc": {**_PROVIDER, **data["oidc"]}}
    return data


def test_there_are_tables_to_look_at() -> None:
    assert len(_tables()) >= 12


@pytest.mark.parametrize(("page", "text"), _tables())
def test_a_table_of_a_page_is_taken_by_what_reads_it(page: str, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Strictly: a key that nothing knows is an error for each of them."""
    data = tomllib.loads(text)
    if page == "recordings.md":  # its job.toml is read by another reader, to which an unknown key is a warning
        (tmp_path / "job.toml").write_text(text, encoding="utf-8")
        assert read_job(tmp_path / "job.toml").machines == tuple(data["machines"]) and not caplog.records
        return
    refusals = (
        _accepts(JobConfig, _as_job(data)),
        _accepts(ServiceFile, _as_service(data)),
        _accepts(TrainingRecipe, data),
        _accepts(MetricMapping, data),
    )
    assert None in refusals, f"{page}: nothing takes this: {refusals}"


@pytest.mark.lab
def test_dumps_that_the_page_writes_are_read_by_the_command(tmp_path: Path) -> None:
    """Two ranks of gloo; the second leaves before the last all-reduce."""
    (snippet,) = [text for language, _, text in blocks(ROOT / "docs/collectives.md") if language == "python" and "_dump_fr_trace" in text]
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    script = textwrap.dedent("""
        import os, sys, threading, time
        import torch, torch.distributed as dist
        rank = int(sys.argv[1])
        dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}/store", rank=rank, world_size=2)
        for _ in range(3):
            dist.all_reduce(torch.ones(4))
        if rank == 0:
            threading.Thread(target=lambda: dist.all_reduce(torch.ones(4)), daemon=True).start()
            time.sleep(1.0)
    """)
    wait = textwrap.dedent(f"""
        open(r"{tmp_path}/done" + str(rank), "w").close()
        while not all(os.path.exists(r"{tmp_path}/done" + other) for other in "01"):
            time.sleep(0.1)
        os._exit(0)
    """)
    (tmp_path / "job.py").write_text(script + snippet.replace("/shared/dumps", str(dumps)) + wait)
    environment = {**os.environ, "TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1"}
    ranks = [subprocess.Popen([sys.executable, "job.py", str(rank), str(tmp_path)], cwd=tmp_path, env=environment) for rank in (0, 1)]
    assert [rank.wait(120) for rank in ranks] == [0, 0]
    (dumps / "job.toml").write_text('name = "two"\nmachines = ["a", "b"]\ngpus_per_machine = 1\n[parallelism]\ndata = 2\n')
    answer = _minder("collectives", str(dumps))
    assert answer["suspect_ranks"] == [1] and answer["cause"] == "not launched"


def test_traces_that_the_page_writes_are_merged_as_it_says_and_read_by_the_command(tmp_path: Path) -> None:
    """One stage of two data parallel ranks, ten steps, all of them traced."""
    loop, merge = [text for language, _, text in blocks(ROOT / "docs/step-traces.md") if language == "python"]
    before = textwrap.dedent("""
        import sys, time
        import minder
        dp_rank, stage, loader = int(sys.argv[1]), 0, [(0, 1)] * 10
    """)
    loop = loop.replace("dp_rank=dp_rank", "dp_rank=dp_rank, sample=1.0").replace("...", "time.sleep(0.003)")
    loop += "            with trace.op('backward-compute', mb=mb, mc=0):\n                time.sleep(0.003)\n"
    (tmp_path / "train.py").write_text(before + loop)
    for rank in (0, 1):
        environment = {**os.environ, "MINDER_TRACE_DIR": str(tmp_path / "traces"), "RANK": str(rank), "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "train.py", str(rank)], cwd=tmp_path, env=environment, check=True, timeout=120)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", merge], cwd=tmp_path, env=environment, check=True, timeout=120)
    (tmp_path / "meta.yaml").write_text("dp_size: 2\npp_size: 1\ntp_size: 1\ndsp_size: 1\nvpp_size: 1\nworld_size: 2\n")
    assert _minder("whatif", str(tmp_path / "trace.parquet"), "--job", str(tmp_path / "meta.yaml"))["slowdown"] >= 1.0


def _minder(*arguments: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "minder", *arguments], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))
