"""The version of a job's code is its content's, wherever it lies."""

from __future__ import annotations

import shutil
from pathlib import Path

from minder.edge.launcher.code import code_version


def write(folder: Path, text: str = "print(1)\n") -> Path:
    (folder / "parts").mkdir(parents=True)
    (folder / "train.py").write_text("from parts import model\n")
    (folder / "parts" / "model.py").write_text(text)
    return folder / "train.py"


def test_the_same_files_are_the_same_version_on_another_machine(tmp_path: Path) -> None:
    script = write(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    other = str(tmp_path / "two" / "train.py")
    assert code_version([str(script)], {}) == code_version([other], {}) != ""


def test_a_changed_module_or_argument_is_another_version(tmp_path: Path) -> None:
    script = write(tmp_path / "one")
    before = code_version([str(script)], {})
    assert code_version([str(script), "--lr", "1"], {}) != before
    (tmp_path / "one" / "parts" / "model.py").write_text("print(2)\n")
    assert code_version([str(script)], {}) != before


def test_the_site_may_say_it_and_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    assert code_version([str(write(tmp_path / "one"))], {"MINDER_CODE_VERSION": "v7"}) == "v7"
    assert code_version([str(tmp_path / "nothing" / "train.py")], {}) == "" == code_version([], {})


def test_a_module_is_known_by_its_package() -> None:
    assert code_version(["-m", "json.tool"], {}) == code_version(["-m", "json.tool"], {}) != ""
    assert code_version(["-m", "no_such_package_at_all"], {}) == ""
