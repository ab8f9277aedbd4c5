"""Code in the documents: a block with a file's name runs as that file, after the blocks before it; any other is at least Python."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w+)(?: title=\"([\w./-]+)\")?[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


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
