"""The surface of the command line: which verbs there are, and what all of them promise (docs/quickstart.md)."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import itertools
import re
import shlex
from pathlib import Path

import pytest

from minder.cli import VERBS, main

ROOT = Path(__file__).resolve().parent.parent
BASH = re.compile(r"^ *```(?:bash|console|sh)\b[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
FROZEN_VERBS = {
    "collectives",
    "stacks",
    "policy",
    "demo",
    "doctor",
    "run",
    "watch",
    "replay",
    "simulate",
    "incidents",
    "machine",
    "decision",
    "job",
    "report",
    "plan",
    "pause",
    "unpause",
    "maintenance",
    "serve",
    "token",
    "agent",
    "launch",
    "cache",
    "lab",
    "evaluate",
    "train",
    "promote",
    "whatif",
}


@functools.cache
def command_lines() -> list[str]:
    """Every command as it is typed after `minder`: a verb, or a verb and its own verb. A verb that cannot be imported stands for itself."""
    lines: list[str] = []
    for verb in VERBS:
        try:
            module = importlib.import_module(f"minder.cli.{verb.replace('-', '_')}")
        except ModuleNotFoundError:
            module = None
        app = getattr(module, "app", None)
        inner = [] if app is None else [command.name or command.callback.__name__.replace("_", "-") for command in app.registered_commands]
        lines += [f"{verb} {name}" for name in inner] if len(inner) > 1 else [verb]
    return lines


def help_of(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    assert main([*line.split(), "--help"]) == 0
    return capsys.readouterr().out


def test_the_verbs_are_these() -> None:
    """A verb is a promise: whoever adds or takes one away changes this line, CHANGELOG.md and the quickstart."""
    assert set(VERBS) == FROZEN_VERBS


@pytest.mark.parametrize("line", command_lines())
def test_help_shows_an_example_whose_options_exist(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(line, monkeypatch, capsys)
    example = re.search(rf"Example:\s+(minder (?:--server \S+ )?{line}\b.*)", text)
    assert example, text
    typed = shlex.split(re.sub(r"--server \S+ ", "", example.group(1).strip(" │")))
    own = typed[: typed.index("--")] if "--" in typed else typed
    options = {word.split("=")[0] for word in own if word.startswith("-")}
    assert {
        option for option in options if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text.replace(example.group(0), ""))
    } == set()


@pytest.mark.parametrize("arguments", [["nosuchverb"], ["replay", "--nosuchoption"], ["replay"], ["--nosuchoption"]])
def test_wrong_usage_is_one_line_and_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert len(output.err.strip().splitlines()) == 1


def test_a_file_that_is_not_there_is_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path / "nothing")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "nothing" in line


# Documents


# In the same marks as a command, but none: reasons and comments that minder writes, and the name of a process.
NO_COMMANDS = ("minder <operation>: ", "minder evict-0123456789ab: ", "minder scoring JOB")


def document_texts() -> list[str]:
    """The reference of commands is left out: it is written from the commands themselves."""
    front = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "notebooks/README.md", "datasets/README.md")]
    pages = [*front, *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "reference")]
    return [page.read_text(encoding="utf-8") for page in pages]


def commands_in_documents() -> list[str]:
    """Every command of ours in a page: what the reader is to type, in indented and bash blocks, and what stands in its sentences."""
    texts = document_texts()
    lines = [line for text in texts for line in text.splitlines() if line.startswith("    ")]
    lines += [f"    {line.strip()}" for text in texts for block in re.findall(BASH, text) for line in block.splitlines()]
    found = [re.sub(r"\s+#.*", "", line).strip() for line in lines if re.match(r" {4,}(\.venv/bin/)?minder ", line)]
    found += [words for text in texts for words in re.findall(r"`((?:\.venv/bin/)?minder [^`\n]+)`", text)]
    return [line for line in dict.fromkeys(line.removeprefix(".venv/bin/") for line in found) if not line.startswith(NO_COMMANDS)]


@functools.cache
def help_text(line: str) -> str:
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setenv("COLUMNS", "200")
        patch.setenv("TERM", "dumb")
        assert main([*line.split(), "--help"]) == 0
    return out.getvalue()


@pytest.mark.parametrize("command", commands_in_documents())
def test_commands_in_documents_have_verbs_and_options_that_exist(command: str) -> None:
    words = shlex.split(command)[1:]
    while words[:1] and words[0] in (
        "--server",
        "--token-file",
        "--ca-file",
        "--log-level",
        "--log-format",
    ):  # before the verb
        words = words[2:]
    own = words[: words.index("--")] if "--" in words else words
    known = [*command_lines(), *VERBS]
    line = next((line for line in known if line.split() == own[: len(line.split())]), None)
    assert line, f"no such command: {command}"
    given = own[len(line.split()) :]
    assert line in command_lines() or given in ([], ["--help"]), f"{line} has commands of its own: {command}"
    text = help_text(line)
    handed_on = [word for before, word in itertools.pairwise(given) if before == "--args"]  # the script's own options
    options = {word.split("=")[0] for word in given if word.startswith("--") and word not in handed_on}
    assert {word for word in options if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)} == set()


def test_what_is_called_no_command_stands_in_a_page() -> None:
    assert [words for words in NO_COMMANDS if not any(f"`{words}" in text for text in document_texts())] == []


def test_the_configuration_in_the_quickstart_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from minder.config import load_config
    from minder.wire.machine_tokens import give_token

    monkeypatch.chdir(tmp_path)
    for machine in ("node-0001", "node-0002", "node-0100"):
        give_token(Path("tokens"), machine)

    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/quickstart.md").read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "job.toml"
    path.write_text(block, encoding="utf-8")
    config = load_config(path)
    assert [machine.name for machine in config.machines if machine.standby] == ["node-0100"]
    assert config.topology().machines == ("node-0001", "node-0002")
