"""`minder doctor` as it is typed: exit status, one line for what is wrong, JSON for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minder.cli import main

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--config", "job.toml", "--prometheus", "http://127.0.0.1:9"], "give one of them"),
        (["--draft", "job.toml"], "--prometheus URL"),
        (["--prometheus", "localhost:9090"], "is no address"),
        (["--prometheus", "http://127.0.0.1:9", "--header", "secret"], "Name: value"),
        (["--format", "yaml"], "--format"),
        (["--config", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(arguments: list[str], expected: str, capsys: Captured) -> None:
    assert main(["doctor", *arguments]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert expected in line


def test_a_prometheus_that_is_down_is_a_finding_and_exit_1(tmp_path: Path, capsys: Captured) -> None:
    assert main(["doctor", "--prometheus", "http://127.0.0.1:9", "--draft", str(tmp_path / "job.toml"), "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["fine"] is False and found["written"] == [] and found["findings"][0]["check"] == "prometheus"
    assert found["findings"][0]["mend"] and not (tmp_path / "job.toml").exists()


def test_tokens_that_are_wrong_are_told_before_the_rest_is_read(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o644)
    (tmp_path / "job.toml").write_text(
        'name = "llm"\nagent_token_file = "token"\n[[machines]]\nname = "m1"\nagent = "http://127.0.0.1:9"\n'
    )
    assert main(["doctor", "--config", str(tmp_path / "job.toml")]) == 1
    text = capsys.readouterr().out
    assert "missing  agent_token_file" in text and "-> run `chmod 600" in text and "ledger" not in text
