"""The command line as a whole: exit status, one line for what is wrong, verbs loaded when they are called."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minder.cli import VERBS, main
from minder.wire.tokens import write_token


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


def one_line(text: str) -> str:
    assert text.startswith("minder: ") and text.count("\n") == 1 and "Traceback" not in text, text
    return text


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run([verb, "--help"], capsys)
    assert status == 0 and "Usage" in out


def test_help_shows_what_stands_in_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    _, watch, _ = run(["watch", "--help"], capsys)
    _, returning, _ = run(["machine", "return", "--help"], capsys)
    assert watch.count("[engine]") == 2 and "[engine]" in returning


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(["--help"], capsys)
    assert status == 0 and all(verb in out for verb in VERBS)


def test_the_version_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    from minder import __version__

    assert run(["--version"], capsys)[:2] == (0, f"minder {__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["fly"],
        ["run"],
        ["run", "--act"],
        ["run", "--config", "gone.toml"],
        ["run", "--config", "gone.toml", "--", "train.py"],
        ["run", "--nproc", "0", "--", "train.py"],
        ["run", "--", "gone.py"],
        ["run", "--", "python"],
        ["watch", "--job", "gone.toml"],
        ["demo", "--fault", "lightning"],
        ["demo", "--fault", "hang", "--at", "2"],
        ["demo", "--machines", "1"],
        ["replay", "no-such-folder"],
        ["pause"],
        ["machine", "outcome", "m1", "perhaps"],
        ["incidents", "show", "no-such-incident"],
        ["launch", "--job", "x"],
        ["agent", "--listen", "nowhere"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_line_and_exit_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINDER_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("MINDER_LEDGER", raising=False)
    status, _, err = run(arguments, capsys)
    one_line(err)
    assert status == 2


def test_a_bad_job_file_is_told_with_file_and_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('name = "x"\ncolour = "red"\n[[machines]]\nname = "m0"\n')
    status, _, err = run(["run", "--config", str(path)], capsys)
    assert status == 2 and "colour" in one_line(err) and str(path) in err


def test_a_verb_loads_nothing_that_it_does_not_need() -> None:
    code = (
        "import sys; from minder.cli import main; main(['--help']); main(['pause', '--help']);"
        "heavy = {'torch', 'mlflow', 'pandas', 'sklearn', 'matplotlib', 'polars', 'prometheus_api_client', 'uvicorn'};"
        "bad = heavy & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def busy() -> Iterator[str]:
    """An address where somebody listens already."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        yield f"127.0.0.1:{holder.getsockname()[1]}"


@pytest.mark.parametrize("verb", ["agent", "launch"])
def test_a_port_in_use_is_one_clear_line(verb: str, busy: str, tmp_path: Path) -> None:
    write_token(tmp_path / "token")
    (tmp_path / "train.py").write_text("")
    command = [verb, "--machine", "m0", "--listen", busy, "--token-file", str(tmp_path / "token"), "--run-dir", str(tmp_path / "run")]
    command += ["--job", "x", "--", str(tmp_path / "train.py")] if verb == "launch" else ["--gpu", "off"]
    done = subprocess.run([sys.executable, "-m", "minder", *command], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1 and busy.split(":")[1] in lines[0] and "Traceback" not in done.stderr, done.stderr


@pytest.mark.lab
def test_a_port_in_use_as_telemetry_shows_in_no_traceback(busy: str, tmp_path: Path) -> None:
    """Whoever listens at a launcher's address may be no launcher at all."""
    write_token(tmp_path / "token")
    path = tmp_path / "job.toml"
    path.write_text(
        f'name = "x"\nstate_dir = "{tmp_path}/state"\nstart_deadline_s = 2.0\nlauncher_token_file = "{tmp_path}/token"\n'
        f'[[machines]]\nname = "m0"\nlauncher = "http://{busy}"\nagent = "http://{busy}"\n'
    )
    command = [sys.executable, "-m", "minder", "run", "--config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    from minder.act.recovery.rendezvous import RendezvousHost

    RendezvousHost(tmp_path / "state", "127.0.0.1").stop()
    assert done.returncode == 1 and "m0" in done.stderr and "Traceback" not in done.stderr, done.stderr
