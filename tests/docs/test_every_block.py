"""Nothing stands in the documents for the reader to type or to copy that no test runs or reads: a new block needs a keeper here.

A block of TOML is read by what reads such a file, a block of Python with a file's name runs (test_examples.py), and every command of
ours is held against the command line (tests/test_commands.py). What is left is listed here, block by block or page by page.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("minder_docs_pages", Path(__file__).with_name("pages.py"))
assert _spec is not None and _spec.loader is not None
pages: Any = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = pages
_spec.loader.exec_module(pages)

PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
EXAMPLES, SNIPPETS = "tests/docs/test_examples.py", "tests/docs/test_snippets.py"
PICTURE = "a picture in letters"
OUTPUT = "what a command prints"
_CACHE_LINES = "tests/serve/deploy/test_units.py::test_the_pages_lines_for_a_cache_are_what_a_shell_and_the_command_line_take"
NO_TEST = "No test types"  # the page says so, in these words, and why

# (page, language) whose blocks are typed from the first to the last
TYPED = {
    ("docs/install.md", "sh"): "tests/docs/test_install_page.py",
    ("docs/service.md", "sh"): "tests/docs/test_service_page.py",
    ("docs/notices.md", "sh"): "tests/docs/test_service_page.py",
    ("docs/training.md", "indented"): "tests/docs/test_training_page.py",
    ("docs/ray.md", "indented"): "tests/docs/test_ray_page.py",
    ("docs/first-contact.md", "indented"): "tests/doctor/test_first_contact.py",
    ("docs/tls.md", "indented"): "tests/docs/test_tls_page.py",
}
# (page, how a block begins): the test that runs or reads it, or why none does
KEPT = {
    ("docs/adoption.md", "From 20"): "tests/adoption/test_adoption.py::test_the_page_shows_what_is_printed",
    ("docs/architecture.md", "every machine:"): PICTURE,
    ("docs/benchmark.md", '"""The machine'): "tests/benchmark/test_page.py::test_the_program_of_the_page_answers",
    ("docs/batches.md", "import minder"): "tests/worker/test_skips.py::test_the_lines_of_the_page_do_what_it_says",
    ("docs/batches.md", "from minder.edge"): "tests/worker/test_skips.py::test_the_lines_of_the_page_do_what_it_says",
    ("docs/collectives.md", "from torch._C"): f"{EXAMPLES}::test_dumps_that_the_page_writes_are_read_by_the_command",
    ("docs/collectives.md", "import minder"): f"{SNIPPETS}::test_the_line_that_keeps_dumps_keeps_them",
    ("docs/collectives.md", "m1 to m2"): OUTPUT,
    ("docs/logging.md", "time="): OUTPUT,
    ("docs/collectives.md", "export NCCL_PROFILER_PLUGIN"): NO_TEST,
    ("docs/data.md", "sampler = DistributedSampler"): NO_TEST,
    ("docs/data.md", "loader = minder.DataLoader"): "tests/loader/test_loader.py::test_the_lines_of_the_page_go_on_where_they_were",
    ("docs/data.md", "from minder.edge.data.hugging_face"): "tests/loader/test_trainers.py::test_the_lines_of_the_page_for_the_trainer",
    ("docs/first-contact.md", "ok       machines"): OUTPUT,
    ("docs/first-contact.md", "minder_controller_score_ratio"): OUTPUT,
    ("docs/install.md", "pg_dump"): f"{SNIPPETS}::test_the_ledger_in_postgresql_is_backed_up_as_the_page_says",
    ("docs/install-kubernetes.md", "kubectl create namespace"): NO_TEST,
    ("docs/install-kubernetes.md", "kubectl get nodes"): NO_TEST,
    ("docs/install-kubernetes.md", "helm upgrade"): "tests/serve/deploy/test_helm_cluster.py",
    ("docs/install-kubernetes.md", "image: "): "tests/serve/deploy/test_helm_cluster.py",
    ("docs/quickstart.md", "scrape_configs:"): "tests/simulate/demo/test_named_prometheus.py",
    ("docs/quickstart.md", "import minder"): f"{EXAMPLES}::test_the_script_of_the_quickstart_trains",
    (
        "docs/quickstart.md",
        "from minder.edge.worker import",
    ): f"{SNIPPETS}::test_the_guard_of_the_quickstart_names_the_rank_that_computes_nonsense",
    ("docs/recordings.md", '{"recording": "r0001", "fault"'): f"{SNIPPETS}::test_a_truth_is_read_as_the_page_writes_it",
    ("docs/recordings.md", '{"recording": "r0001", "time"'): OUTPUT,
    ("docs/replay.md", "asked = minder.replay()"): f"{SNIPPETS}::test_a_script_of_the_job_answers_a_replay_as_the_page_says",
    ("docs/notices.md", "from minder.record.api.notices"): f"{SNIPPETS}::test_a_webhook_checks_its_signature_as_the_page_says",
    ("docs/service.md", "from minder.record.client"): "tests/docs/test_service_page.py::test_the_client_of_the_page_asks_a_real_service",
    ("docs/notices.md", "receivers:"): f"{SNIPPETS}::test_alertmanager_takes_the_receiver_of_the_page",
    ("docs/state.md", "from minder import Checkpointer"): "tests/cache/test_memory_tier.py::test_the_lines_of_the_page_save_and_load",
    (
        "docs/state.md",
        "checkpoints = Checkpointer",
    ): "tests/cache/test_memory_tier.py::test_the_lines_of_the_page_about_a_rollback_keep_what_they_say",
    ("docs/state.md", "import torch.distributed"): "tests/cache/test_adapters.py::test_dcp_saves_into_the_cache_and_loads_from_it",
    (
        "docs/state.md",
        "from minder.edge.checkpoint.hugging_face",
    ): "tests/cache/test_adapters.py::test_hugging_faces_trainer_goes_on_from_memory_as_if_nothing_had_been",
    ("docs/state.md", "srun --overlap"): _CACHE_LINES,
    ("docs/state.md", "volumes:"): _CACHE_LINES,
    (
        "docs/state.md",
        "from minder.edge.checkpoint.torchtitan",
    ): "tests/cache/test_foreign_writers.py::test_torchtitan_goes_on_from_memory_after_a_machine_is_lost",
    ("docs/step-traces.md", "dp_size:"): f"{SNIPPETS}::test_the_layout_of_a_trace_is_read",
    (
        "docs/step-traces.md",
        "for step, batch",
    ): f"{EXAMPLES}::test_traces_that_the_page_writes_are_merged_as_it_says_and_read_by_the_command",
    ("docs/step-traces.md", "from pathlib"): f"{EXAMPLES}::test_traces_that_the_page_writes_are_merged_as_it_says_and_read_by_the_command",
    ("docs/training.md", "minder train --cross-validate"): NO_TEST,
    ("docs/tls.md", "scheme: https"): f"{SNIPPETS}::test_prometheus_takes_the_lines_of_the_tls_page",
}


def all_blocks() -> list[Any]:
    return [block for page in PAGES for block in pages.blocks(page)]


def keeper_of(block: Any) -> str | None:
    """Who runs or reads a block as a whole."""
    if block.language == "toml" or (block.language == "python" and block.title):
        return EXAMPLES
    begin = block.text.lstrip()
    listed = [keeper for (page, first), keeper in KEPT.items() if page == block.page and begin.startswith(first)]
    return listed[0] if listed else TYPED.get((block.page, block.language))


def unkept(block: Any) -> list[str]:
    """Its lines that nobody looks at."""
    if keeper_of(block) is not None:
        return []
    if block.language not in ("sh", "console", "bash", "indented"):
        return [block.text.splitlines()[0]]
    return [
        line
        for line in block.commands
        if not re.match(r"(\.venv/bin/)?(minder|make|python (bench|models)/\w+\.py|pip install) ?|\.ci/run", line)
    ]


def test_nothing_that_a_reader_types_or_copies_is_without_a_test() -> None:
    found = [f"{block.page}:{block.line}: {line}" for block in all_blocks() for line in unkept(block)]
    assert found == [], "give it a test and a line in KEPT, or say on the page why no test types it"


def test_the_lists_are_of_what_is_there() -> None:
    there = all_blocks()
    gone = [key for key in KEPT if not any(block.page == key[0] and block.text.lstrip().startswith(key[1]) for block in there)]
    gone += [key for key in TYPED if not any((block.page, block.language) == key for block in there)]
    assert gone == []


def test_every_keeper_is_a_test_that_looks_at_the_page() -> None:
    """A file of tests that names the page, and in it the test, if one is named; or the page says itself that there is none."""
    for (page, _), keeper in (*KEPT.items(), *TYPED.items()):
        path, _, name = keeper.partition("::")
        if keeper == NO_TEST:
            assert NO_TEST in (ROOT / page).read_text(encoding="utf-8"), page
        elif keeper not in (PICTURE, OUTPUT):
            text = (ROOT / path).read_text(encoding="utf-8")
            assert Path(page).name in text and (not name or f"def {name}(" in text), (page, keeper)


def lines_of(first: str | tuple[str, ...]) -> list[Any]:
    found = [(block.page, line) for block in all_blocks() for line in block.commands if line.startswith(first)]
    assert found
    return [pytest.param(line, id=f"{Path(page).stem}: {line[:40]}") for page, line in dict.fromkeys(found)]


@pytest.mark.parametrize("line", lines_of("make "))
def test_a_target_of_make_exists(line: str) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {word for word in shlex.split(line)[1:] if "=" not in word} <= targets


@pytest.mark.parametrize("line", lines_of(("python bench/", "python models/")))
@pytest.mark.lab
def test_a_script_has_the_options_of_the_page(line: str) -> None:
    for part in line.split(" && "):
        words = shlex.split(part)
        command = [sys.executable, words[1], "--help"]
        done = subprocess.run(command, cwd=ROOT, env=pages.environment(), capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        assert {word for word in words if word.startswith("--")} <= set(re.findall(r"--[\w-]+", done.stdout))


@pytest.mark.parametrize("line", lines_of("pip install"))
def test_an_extra_exists(line: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (named,) = re.findall(r"minder-cluster\[([\w,]+)\]", line)
    assert set(named.split(",")) <= set(extras)


def test_files_that_a_command_names_are_in_the_checkout() -> None:
    words = [(block.page, word) for block in all_blocks() for line in block.commands for word in re.findall(r"[\w./-]+", line)]
    own = [(page, word) for page, word in words if re.match(r"(serve/deploy|bench|datasets|models|notebooks)/[\w./-]+$", word)]
    assert len(own) > 10
    assert [item for item in own if not (ROOT / item[1]).exists()] == []
