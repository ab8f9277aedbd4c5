"""docs/training.md is typed from its first line to its last in a new folder: its recordings, recipe and tables, small ones."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PAGE = "training.md"
HERE = Path(__file__).parent

pytestmark = [pytest.mark.lab, pytest.mark.release, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def pages(load_file: Callable[[Path], ModuleType]) -> ModuleType:
    return load_file(HERE / "pages.py")


@pytest.fixture(scope="module")
def shell(pages: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The page's folder: its recipe, and beside it what makes its simulations small."""
    pytest.importorskip("mlflow", reason="needs the models extra: pip install 'minder-cluster[models]'")
    folder = tmp_path_factory.mktemp("page")
    (folder / "small.toml").write_text(pages.SMALL_JOBS)
    packaged = (pages.ROOT / "models/recipes/threshold.toml").read_text(encoding="utf-8")
    made = packaged.replace('recipe = "plain", count = 60', 'recipe = "small.toml", count = 8')
    assert made != packaged
    (folder / "quick.toml").write_text(made)
    (folder / "models").symlink_to(pages.ROOT / "models")
    recipe, _ = pages.tables(PAGE)
    (folder / "site.toml").write_text(recipe)
    return pages.Shell(folder, ("minder", "mlflow"))


@pytest.fixture(scope="module")
def lines(pages: ModuleType, shell: Any) -> list[str]:
    words = {
        "simulate plain": "simulate ./small.toml",
        "--count 40": "--count 8",
        "--count 12": "--count 10",
        "train threshold --jobs 8": "train quick.toml --jobs 2",
        "--jobs 4": "--jobs 2",
        "sqlite:////var/lib/minder/mlflow.db": f"sqlite:///{shell.folder}/server.db",
        "recipe=threshold": f"recipe={shell.folder}/quick.toml",
    }
    return list(pages.replaced(pages.typed(PAGE), words))


@pytest.fixture(scope="module")
def followed(shell: Any, lines: list[str]) -> dict[str, str]:
    """What each line up to the last printed. `make setup` is typed by whoever runs these tests; `minder watch` follows below."""
    assert lines[0] == "make setup" and lines[-1] == "minder watch --job job.toml"
    for made in ("recordings", "report", "model", "state"):  # by a first attempt that failed
        shutil.rmtree(shell.folder / made, ignore_errors=True)
    return {line: shell.type(line, (0, 1) if line.startswith("minder promote") else (0,)) for line in lines[1:-1]}


def said(followed: dict[str, str], begin: str) -> str:
    (text,) = [text for line, text in followed.items() if line.startswith(begin)]
    return text


def test_every_command_of_the_page_does_its_work(followed: dict[str, str], shell: Any) -> None:
    assert said(followed, "minder evaluate recordings/plain --out").startswith("default: 8 recordings, ")
    assert {"report.html", "report.json"} <= {path.name for path in (shell.folder / "report").iterdir()}
    assert len(json.loads(said(followed, "minder evaluate recordings/plain --detector minder"))["cases"]) == 8
    assert "registered models:/minder-detector/1" in said(followed, "minder train quick.toml")
    assert "registered models:/minder-detector/2" in said(followed, "minder train site.toml")
    assert {"model.json", "card.md"} <= {path.name for path in (shell.folder / "model").iterdir()}


def test_the_mlflow_project_registers_where_it_was_told(followed: dict[str, str], shell: Any) -> None:
    assert followed
    with contextlib.closing(sqlite3.connect(shell.folder / "server.db")) as database:
        assert database.execute("SELECT name, version FROM model_versions").fetchall() == [("minder-detector", 1)]


def test_a_promotion_says_why_and_who_is_the_champion(followed: dict[str, str]) -> None:
    text = said(followed, "minder promote 2")
    assert re.search(
        r"^version 2 (is the champion now|stays a challenger); compared with default \(there is no champion yet\)$", text, re.M
    )
    assert len(text.splitlines()) >= 2, "a reason is a line"


@pytest.fixture
def agent(shell: Any) -> Iterator[str]:
    """A real agent of this machine; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    (shell.folder / "token").write_text("a" * 32)
    (shell.folder / "token").chmod(0o600)
    process = shell.start(f"minder agent --machine m0 --gpu off --listen {address} --token-file token")
    try:
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=30)


def test_the_table_of_the_page_runs_and_a_model_that_is_not_there_stops_the_start(
    followed: dict[str, str], pages: ModuleType, shell: Any, lines: list[str], agent: str
) -> None:
    """The folder and the shadow that the page names are those that its own commands made."""
    assert followed
    _, table = pages.tables(PAGE)
    job = f'name = "llm"\nagent_token_file = "token"\n[[machines]]\nname = "m0"\nagent = "http://{agent}"\n'
    (shell.folder / "job.toml").write_text(job + table)
    shell.type(f"{lines[-1]} --duration 5")
    (shell.folder / "job.toml").write_text(job + table.replace("minder-detector/1", "minder-detector/99"))
    text = shell.type(f"{lines[-1]} --duration 5", (2,))
    assert "models:/minder-detector/99 is not in the registry" in text and len(text.splitlines()) == 1
