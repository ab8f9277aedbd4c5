"""This machine alone: what is accepted as a script, and that nothing is left where starting fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minder.app.solo import SoloAgent, SoloMachine, _end_former_run, script_words
from minder.model.errors import BadInputError, MinderError, MissingExtraError
from minder.record.incidents import Ledger, kinds


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('hello')")
    return tmp_path


@pytest.mark.parametrize("interpreter", [[], ["python"], ["python3"], ["python3.11", "-u"], [sys.executable]])
def test_an_interpreter_before_the_script_is_tolerated(here: Path, interpreter: list[str]) -> None:
    assert script_words([*interpreter, "train.py", "python", "--steps", "3"]) == ["train.py", "python", "--steps", "3"]


@pytest.mark.parametrize("words", [["nowhere.py"], ["python"], ["-m"], ["."], ["torchrun", "train.py"]])
def test_what_is_no_script_is_refused(here: Path, words: list[str]) -> None:
    with pytest.raises(BadInputError, match="no script"):
        script_words(words)


@pytest.mark.parametrize("name", ["bad name/../x", "", ".hidden", "a" * 64, "new\nline", "-flag"])
@pytest.mark.parametrize("kind", ["run", "watch"])
def test_a_name_that_is_none_is_refused_before_anything_is_made(tmp_path: Path, kind: str, name: str) -> None:
    with pytest.raises(BadInputError, match=r"the job's name .* letters, digits"):
        if kind == "run":
            SoloMachine(name, ["train.py"], ranks=1, in_place=False, state_dir=tmp_path)
        else:
            SoloAgent(name, [1], state_dir=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_same_job_twice_at_once_is_refused(tmp_path: Path) -> None:
    first = SoloMachine("j", ["train.py"], ranks=1, in_place=False, state_dir=tmp_path)
    first._open()
    with pytest.raises(BadInputError, match="already run or watched"):
        SoloAgent("j", [1], state_dir=tmp_path).__enter__()
    first._stack.close()


def test_a_launcher_that_does_not_come_up_is_told_with_its_own_words(tmp_path: Path) -> None:
    machine = SoloMachine("j", ["no-such-script.py"], ranks=1, in_place=False, state_dir=tmp_path)
    with pytest.raises(MinderError, match=r"the launcher ended with status 2: script no-such-script\.py: no such file"):
        machine.__enter__()
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in left


def test_missing_torch_is_said_before_anything_is_made_or_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"torch is not installed: run `pip install 'minder-cluster\[torch\]'`"):
        SoloMachine("j", ["train.py"], ranks=1, in_place=False, state_dir=tmp_path).__enter__()
    assert not list(tmp_path.iterdir())


def test_a_run_that_was_killed_is_not_taken_up(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    with Ledger(path) as ledger:
        ledger.append(kinds.JOB_REGISTERED, {"machines": ["m"], "standbys": []}, job="j")
        ledger.append(kinds.GENERATION_STARTED, {"generation": 1, "rank_machine": {"0": "m"}}, job="j", operation_id="start-j-1")
    _end_former_run("j", path)
    _end_former_run("j", path)
    _end_former_run("another", path)
    with Ledger(path) as ledger:
        (end,) = ledger.events(kinds=[kinds.JOB_ENDED])
    assert (end.job, end.payload["outcome"]) == ("j", "failed")
