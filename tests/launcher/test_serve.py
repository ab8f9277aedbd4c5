"""Bad input of `minder launch`: one line that says how to mend it, exit status 2, nothing started."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = str(Path(__file__).parent / "scripts" / "idle.py")
GOOD = {"--job": "demo", "--machine": "m1", "--listen": "127.0.0.1:0", "--slots": "1"}


def _launch(tmp_path: Path, script: list[str], **changes: str) -> subprocess.CompletedProcess[str]:
    options = {**GOOD, "--run-dir": str(tmp_path), **{f"--{name.replace('_', '-')}": value for name, value in changes.items()}}
    code = "import sys; from minder.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [word for option in options.items() for word in option]
    command = [sys.executable, "-c", code, "launch", *words, "--", *script]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"job": "../etc"}, "--job"),
        ({"machine": "a b"}, "--machine"),
        ({"slots": "0"}, "--slots 0"),
        ({"listen": "4711"}, "is no address"),
        ({"listen": "0.0.0.0:0"}, "--token-file"),
        ({"barrier": "door"}, "--barrier"),
        ({"env": "NOEQUALS"}, "NAME=VALUE"),
        ({"token_file": "/no/such/token"}, "/no/such/token"),
        ({"cgroup": "minder-no-such-group"}, "create it first"),
        ({"step_pattern": "("}, "pattern"),
    ],
)
@pytest.mark.lab
def test_bad_option_is_one_line(tmp_path: Path, changes: dict[str, str], hint: str) -> None:
    found = _launch(tmp_path, [SCRIPT], **changes)
    assert found.returncode == 2 and hint in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1 and found.stdout == ""


def test_missing_script_is_named(tmp_path: Path) -> None:
    found = _launch(tmp_path, ["nowhere.py"])
    assert found.returncode == 2 and "nowhere.py: no such file" in found.stderr


def test_readable_token_file_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    token.chmod(0o644)
    found = _launch(tmp_path, [SCRIPT], token_file=str(token))
    assert found.returncode == 2 and "chmod 600" in found.stderr


def test_port_in_use_says_how_to_mend_it(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = _launch(tmp_path, [SCRIPT], listen=f"127.0.0.1:{taken.getsockname()[1]}")
    assert found.returncode == 2 and "choose another --listen" in found.stderr


def test_second_launcher_of_a_job_is_refused(launch: Callable[..., Any]) -> None:
    first = launch("idle.py", env={"PYTHONPATH": str(Path(SCRIPT).parent / "no_torch")}).connect()
    found = _launch(first.run_dir, [SCRIPT])
    assert found.returncode == 2 and "already has a launcher" in found.stderr


def test_launcher_loads_nothing_heavy() -> None:
    heavy = ["torch", "numpy", "polars", "pydantic", "sqlalchemy", "fastapi", "httpx"]
    code = (
        f"import sys, minder.cli, minder.cli.launch, minder.edge.launcher.serve; print([name for name in {heavy!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert found.stdout.strip() == "[]"
