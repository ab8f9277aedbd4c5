"""What is installed works without the checkout: the wheel carries all that a command needs."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.lab


def call(*command: str | Path, cwd: Path) -> str:
    """Its output. Without PYTHONPATH: what is found through that is no install's."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(part) for part in command]
    answer = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert answer.returncode == 0, f"{command}: {answer.stdout}{answer.stderr}"
    return answer.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    call(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT, cwd=folder)
    (path,) = folder.glob("minder_cluster-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of an environment that has the wheel, and the dependencies of this one behind it.

    A path in a .pth file comes after the environment's own packages, and .pth files found through it are not read: the editable
    install of the checkout stays out of sight.
    """
    environment = tmp_path_factory.mktemp("installed")
    call(sys.executable, "-m", "venv", "--without-pip", environment, cwd=environment)
    python = environment / "bin" / "python"
    packages = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=environment).strip())
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    call(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--ignore-installed", wheel, cwd=environment)
    return environment / "bin"


def test_the_wheel_carries_everything_that_is_no_cache(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    paths = [path for package in ("minder", "serve") for path in (ROOT / package).rglob("*")]
    files = {str(path.relative_to(ROOT)) for path in paths if path.is_file() and "__pycache__" not in path.parts}
    assert files - packed == set()
    assert {"minder/py.typed", "serve/py.typed", "serve/app.py"} <= packed
    assert {"serve/templates/base.html", "serve/static/minder.css", "serve/static/vendor/htmx.min.js"} <= packed
    assert not [name for name in packed if name.startswith(("tests/", "docs/"))]


def test_the_installed_package_is_not_the_checkout(installed: Path, tmp_path: Path) -> None:
    where = call(installed / "python", "-c", "import minder; print(minder.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(installed.parent)


def test_the_installed_command_tells_its_version(installed: Path, tmp_path: Path) -> None:
    import minder

    assert minder.__version__ in call(installed / "minder", "--version", cwd=tmp_path)


@pytest.mark.parametrize("verb", ["replay", "demo", "agent", "launch", "incidents", "serve", "token"])
def test_the_installed_commands_explain_themselves(installed: Path, tmp_path: Path, verb: str) -> None:
    assert f"minder {verb}" in call(installed / "minder", verb, "--help", cwd=tmp_path)


def test_the_installed_ledger_has_its_migrations(wheel: Path) -> None:
    packed = zipfile.ZipFile(wheel).namelist()
    assert [name for name in packed if name.startswith("minder/record/store/") and "migration" in name]


def test_the_installed_models_and_recipes_are_found(wheel: Path, installed: Path, tmp_path: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {"minder/_data/models/scorer.py", "minder/_data/models/MLproject", "minder/_data/models/recipes/default.toml"} <= packed
    code = (
        "from minder.offline.training.recipe import load_training_recipe as load; print(load('default').name, load('reference').detector)"
    )
    assert call(installed / "python", "-c", code, cwd=tmp_path).split() == ["default", "minder"]


@pytest.mark.package("editables")
def test_an_editable_install_does_not_make_the_folders_of_the_checkout_importable(tmp_path: Path) -> None:
    """transformers believes that Hugging Face's `datasets` is there once any folder of that name is on the path."""
    import editables

    call(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    packages = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    (packages / "_dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{Path(editables.__file__).parents[1]}\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-build-isolation", "--ignore-installed")
    call(*pip, "-e", ROOT, cwd=tmp_path)
    code = """
from importlib.util import find_spec
from minder.model.resources import child_python_path, find_resource
import minder, serve
print(minder.__file__, find_spec("datasets"), find_spec("tests"), child_python_path(), find_resource("datasets/recipes/plain.toml").name)
"""
    script = tmp_path / "look.py"
    script.write_text(code)
    assert call(python, script, cwd=ROOT).split() == [str(ROOT / "minder" / "__init__.py"), "None", "None", "{}", "plain.toml"]
