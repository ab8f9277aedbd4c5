"""`pip install minder-cluster` alone: what agents, launchers, workers and clients need, and a plain word about the rest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

from minder.cli import VERBS, extras, main
from minder.cli.extras import CONTROLLER_MODULES, LIGHT_VERBS, SERVED_VERBS
from minder.model.errors import MissingExtraError

ROOT = Path(__file__).resolve().parent.parent.parent
HEAVY = {
    "alembic",
    "fastapi",
    "matplotlib",
    "mlflow",
    "numpy",
    "pandas",
    "polars",
    "prometheus-api-client",
    "pyyaml",
    "scipy",
    "sqlalchemy",
    "torch",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# What the base lacks is not there, for imports and for those who look first. Then a service that has nothing to tell, and commands.
SCRIPT = """
import contextlib, importlib.machinery, io, json, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer

HIDDEN = set(json.loads(sys.argv[1]))

class Bare(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in HIDDEN else super().find_spec(name, path, target)

sys.meta_path[:] = [Bare if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]

class Empty(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"items": [], "next": None}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

server = HTTPServer(("127.0.0.1", 0), Empty)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"

import minder
minder.heartbeat
import minder.edge.agent.serve, minder.edge.launcher.serve, minder.edge.worker
from minder.cli import main

found = []
for words in json.loads(sys.argv[2]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([url if word == "URL" else word for word in words])
    found.append([status, out.getvalue(), err.getvalue()])

from minder.record.client import Client
with Client(url, "t") as client:
    found.append([0, str(list(client.machines())), ""])
print(json.dumps({"found": found, "loaded": sorted(HIDDEN & set(sys.modules))}))
"""


def test_the_base_pulls_in_nothing_heavy(load_file: Callable[[Path], ModuleType]) -> None:
    """The aim is 60 MB without torch; what each distribution says of its own files is summed up."""
    install = load_file(ROOT / "bench" / "install_size.py")
    names = install.closure(install.requirements())
    assert names & HEAVY == set()
    assert sum(map(install.size_mib, names)) < 60
    assert install.closure(install.requirements(["controller"])) >= {"numpy", "polars", "sqlalchemy"}


def test_the_controller_pulls_in_all_that_its_verbs_ask_for() -> None:
    modules = {"pyyaml": "yaml", "rich": None}  # typer brings rich in any case
    names = [Requirement(text).name for text in PROJECT["optional-dependencies"]["controller"]]
    expected = {modules.get(name, name.replace("-", "_")) for name in names} - {None}
    assert set(CONTROLLER_MODULES) == expected


@pytest.mark.parametrize("extra", ["serve", "models", "postgres", "kubernetes", "ray", "notebooks", "all"])
def test_what_runs_beside_a_controller_includes_it(extra: str) -> None:
    asked = [Requirement(text) for text in PROJECT["optional-dependencies"][extra]]
    assert any(item.name == PROJECT["name"] and "controller" in item.extras for item in asked)


def test_verbs_are_known() -> None:
    assert set(VERBS) >= LIGHT_VERBS | SERVED_VERBS


@pytest.mark.lab
def test_a_bare_install_runs_what_it_is_for_and_says_what_else_needs(tmp_path: Path) -> None:
    served = ["--server", "URL"]
    works = [["--help"], ["agent", "--help"], ["launch", "--help"], ["replay", "--help"]]
    works += [
        [*served, *words]
        for words in (["machine", "list"], ["incidents", "list"], ["decision", "list"], ["pause", "--list"], ["job", "list"])
    ]
    works += [[*served, "maintenance", "list"], ["doctor", "--format", "json"], ["machine", "test", "--local", "--probes", "links"]]
    refused = [
        ["replay", "x"],
        ["machine", "list"],
        ["run", "--", "train.py", "--help"],
        ["doctor", "--config", "x"],
        [*served, "incidents", "cost"],
    ]
    refused += [["stacks", "x"], [*served, "report"]]
    done = bare(works + refused, tmp_path)
    answers = done["found"]
    assert [(words, answer[2]) for words, answer in zip(works, answers, strict=False) if answer[0] not in (0, 1)] == []
    assert "no machine was ever evicted" in answers[4][1]
    assert answers[-1][1] == "[]"  # the client itself
    for words, (status, out, err) in zip(refused, answers[len(works) : -1], strict=True):
        one_line = r"minder: \w+ is not installed: run `pip install 'minder-cluster\[controller\]'`\n"
        assert status == 2 and out == "" and re.fullmatch(one_line, err), (words, err)
    assert done["loaded"] == []


def test_an_import_that_fails_by_our_own_mistake_is_no_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same module, not found although it is installed: a bug, with its traceback."""
    monkeypatch.setitem(sys.modules, "minder.cli.stacks", None)
    with pytest.raises(ModuleNotFoundError, match=r"minder\.cli\.stacks"):
        main(["stacks", "x"])


def test_what_stands_behind_two_dashes_belongs_to_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    extras.demand_for("run", ["--help"], served=False)
    with pytest.raises(MissingExtraError):
        extras.demand_for("run", ["--", "train.py", "--help"], served=False)


def test_a_missing_torch_is_said_before_anything_of_a_verb_is_imported(tmp_path: Path) -> None:
    script = (
        "import importlib.util, json, sys; found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'torch' else found(name)\n"
        "from minder.cli import main\n"
        "for words in (['demo'], ['run', '--', 'train.py'], ['run', '--config', 'job.toml']): print(main(words))\n"
        "print(sorted({'minder.app', 'minder.config', 'minder.simulate', 'numpy', 'polars'} & set(sys.modules)))"
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["2", "2", "2", "[]"]
    assert done.stderr == "minder: torch is not installed: run `pip install 'minder-cluster[torch]'`\n" * 3
    assert not list(tmp_path.iterdir())


def test_a_launcher_says_that_torch_is_missing_and_leaves_it_to_the_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["launch", "--job", "j", "--machine", "m", "--listen", "127.0.0.1:7710", "--", "no-such.py"]) == 2
    torch, script = capsys.readouterr().err.splitlines()
    assert torch == "minder launch: torch is not installed: run `pip install 'minder-cluster[torch]'`, if the script needs it"
    assert script.startswith("minder: script no-such.py: no such file")


def bare(commands: list[list[str]], folder: Path) -> dict[str, list]:
    """What these say, one after the other, in a process in which the controller's libraries are not installed."""
    environment = {
        "PYTHONPATH": str(ROOT),
        "MINDER_TOKEN": "t",
        "MINDER_STATE_DIR": str(folder),
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
    }
    script = [sys.executable, "-c", SCRIPT, json.dumps(sorted({*CONTROLLER_MODULES, "pandas", "scipy"})), json.dumps(commands)]
    done = subprocess.run(script, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list] = json.loads(done.stdout)
    return found
