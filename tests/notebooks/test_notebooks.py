"""The analyst's notebooks: clean as they are stored, and each runs from top to bottom and makes its figures."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELL_LIMIT_S = 900
_FIGURE = re.compile(r"^(Image\(|point_\w+\()", re.MULTILINE)


def cells(path: Path, kind: str = "code") -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def test_there_are_seven_and_the_readme_lists_them() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == [f"{number:02d}" for number in range(1, 8)]
    listed = re.findall(r"\]\((\d\d_[\w]+\.ipynb)\)", (ROOT / "notebooks/README.md").read_text(encoding="utf-8"))
    assert listed == [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_nothing_is_stored_that_a_run_makes(path: Path) -> None:
    assert [cell["id"] for cell in cells(path) if cell["outputs"] or cell["execution_count"] is not None] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_no_logic_of_its_own(path: Path) -> None:
    """Functions, classes and long cells belong into minder, where they are tested."""
    trees = [ast.parse(source(cell)) for cell in cells(path)]
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.While, ast.Try)
    assert [ast.unparse(node)[:80] for tree in trees for node in ast.walk(tree) if isinstance(node, defined)] == []
    assert all(len(source(cell).splitlines()) <= 45 for cell in cells(path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_somewhere(path: Path) -> None:
    links = [link for cell in cells(path, "markdown") for link in re.findall(r"\]\(([^)\s#]+)", source(cell))]
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


@pytest.mark.server
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_makes_its_figures(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs the notebooks extra: pip install 'minder-cluster[notebooks]'")
    nbclient = pytest.importorskip("nbclient", reason="needs the notebooks extra: pip install 'minder-cluster[notebooks]'")
    if path.name.startswith("02"):
        pytest.importorskip("mlflow", reason="needs the models extra: pip install 'minder-cluster[models]'")
    if path.name.startswith("07") and shutil.which("promtool") is None:
        pytest.skip("needs promtool: install prometheus")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=CELL_LIMIT_S, resources={"metadata": {"path": str(path.parent)}})
    client.execute()
    bare = [
        cell["id"] for cell in notebook.cells if cell.cell_type == "code" and _FIGURE.search(cell.source) and not has_figure(cell.outputs)
    ]
    assert bare == []
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"] == [], "a reader sees warnings"
    assert sum(has_figure(cell.outputs) for cell in notebook.cells if cell.cell_type == "code") >= 2


def has_figure(outputs: list[Any]) -> bool:
    """A picture that is not empty, or a figure of Plotly with something in it."""
    for output in outputs:
        data = output.get("data", {})
        if len(data.get("image/png", "")) > 5000 or data.get("application/vnd.plotly.v1+json", {}).get("data"):
            return True
    return False


def test_the_command_of_the_readme_keeps_what_the_notebook_shows() -> None:
    """nbclient runs a notebook and throws its output away unless it is said where that goes."""
    words = shlex.split(re.findall(r"^\.venv/bin/jupyter execute .*$", (ROOT / "notebooks/README.md").read_text(encoding="utf-8"), re.M)[0])
    app = pytest.importorskip("nbclient.cli", reason="needs the notebooks extra: pip install 'minder-cluster[notebooks]'").NbClientApp()
    app.parse_command_line(words[2:])
    assert app.output_base and not app.inplace and app.extra_args[0] in {f"notebooks/{path.name}" for path in NOTEBOOKS}
