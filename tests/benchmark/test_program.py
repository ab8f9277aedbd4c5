"""A program of an entry: its own process, a limit, and a line for what went wrong. The programs here are shell scripts."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from minder.model.errors import BadInputError
from minder.offline.benchmark.answers import Answer
from minder.offline.benchmark.program import Program, parse_program

SAY = """printf '{"input": "%s", "answer": "none"}\\n' "$(basename "$1")"; """


def ask(tmp_path: Path, script: str, limit_s: float = 20.0) -> Answer:
    return Program(("sh", "-c", script, "sh"), "a script").answer(an_input(tmp_path), "stacks", limit_s)


def an_input(tmp_path: Path) -> Path:
    folder = tmp_path / "stacks-99"
    folder.mkdir(exist_ok=True)
    (folder / "m1-rank0.txt").write_text("a dump")
    return folder


def test_a_program_gets_a_copy_under_the_inputs_name(tmp_path: Path) -> None:
    answer = ask(tmp_path, SAY + 'cat "$1"/m1-rank0.txt >&2; rm "$1"/m1-rank0.txt')
    assert (answer.word, answer.problem) == ("none", None)
    assert (tmp_path / "stacks-99" / "m1-rank0.txt").exists()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (SAY + "echo boom >&2; exit 3", "exit status 3: boom"),
        (SAY + "kill -9 $$", "ended by signal 9"),
        ("echo hello", 'line 1 is no JSON: "hello"'),
        ("true", "printed nothing"),
        (SAY + "head -c 1100000 /dev/zero", "more than 1000000 bytes"),
    ],
)
def test_a_program_that_fails_has_not_answered(tmp_path: Path, script: str, says: str) -> None:
    answer = ask(tmp_path, script)
    assert answer.said == () and says in (answer.problem or "")


def test_a_program_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    answer = ask(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; wait", 0.03)
    assert "took longer than 0.03 s of processor time" in (answer.problem or "")
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not is_running(child):
            break
        time.sleep(0.05)
    assert not is_running(child)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_program_that_the_system_does_not_start_has_not_answered(tmp_path: Path) -> None:
    script = tmp_path / "answer"
    script.write_text("a text that names no interpreter\n")
    script.chmod(0o755)
    answer = Program((str(script),), "answer").answer(an_input(tmp_path), "stacks", 20.0)
    assert answer.said == () and answer.problem == "it could not be started: Exec format error"


@pytest.mark.parametrize(
    ("command", "says"), [("", "cannot be started"), ("no-such-program x", "no-such-program"), ("sh 'x", "mend its quotes")]
)
def test_a_command_that_cannot_be_started_is_refused(command: str, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        parse_program(command)


def test_a_file_that_may_not_be_executed_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "answer.sh").write_text("echo")
    with pytest.raises(BadInputError, match=r"answer\.sh' is a file that may not be executed"):
        parse_program(str(tmp_path / "answer.sh"))
