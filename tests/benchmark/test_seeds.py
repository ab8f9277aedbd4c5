"""A judging seed is what was committed to, or it is refused."""

from __future__ import annotations

import json
import stat
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from minder.model.errors import BadInputError
from minder.offline.benchmark.card import benchmark_folder, read_card
from minder.offline.benchmark.seeds import Secret, derive, draw_secret, read_secret, write_secret


def test_a_seed_that_was_committed_to_is_read_back(tmp_path: Path) -> None:
    secret = draw_secret("2026.11")
    write_secret(tmp_path / "held" / "seed", secret)
    assert read_secret(tmp_path / "held" / "seed", secret.commitment, "2026.11") == secret
    assert stat.S_IMODE((tmp_path / "held" / "seed").stat().st_mode) == 0o600
    with pytest.raises(BadInputError, match="must not be lost"):
        write_secret(tmp_path / "held" / "seed", draw_secret("2026.11"))


@pytest.mark.parametrize(
    ("changed", "commitment", "says"),
    [
        ({"seed": "another"}, "as committed", "does not match its commitment"),
        ({"salt": "another"}, "as committed", "does not match its commitment"),
        ({"version": "2026.12"}, "as committed", "is the seed of version 2026.12"),
        ({}, None, "no commitment for version 2026.11"),
        ({"salt": None}, "as committed", "does not match"),
    ],
)
def test_another_seed_is_refused(tmp_path: Path, changed: dict[str, str], commitment: str | None, says: str) -> None:
    secret = Secret("2026.11", "seed", "salt")
    (tmp_path / "seed").write_text(json.dumps({"version": "2026.11", "seed": "seed", "salt": "salt"} | changed))
    with pytest.raises(BadInputError, match=says):
        read_secret(tmp_path / "seed", secret.commitment if commitment else None, "2026.11")


def test_a_file_that_is_no_seed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "seed").write_text("[1, 2]")
    with pytest.raises(BadInputError, match="give a file with version, seed and salt"):
        read_secret(tmp_path / "seed", "0" * 64, "2026.11")


def test_a_release_commits_reveals_and_refuses_in_one_line(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(what: str, secret: Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["bench/benchmark.py", what, "--secret", str(secret)])
        try:
            script.main()
        except SystemExit as end:
            return int(str(end.code)), capsys.readouterr().err
        return 0, capsys.readouterr().out

    committed, other = tmp_path / "held" / "seed", tmp_path / "held" / "another"
    _, line = call("commit", committed)
    version, _, commitment = line.strip().replace('"', "").partition(" = ")
    call("commit", other)
    monkeypatch.setattr(script, "read_card", lambda: replace(read_card(), judging={version: commitment}))
    monkeypatch.setattr(script, "benchmark_folder", lambda: tmp_path)
    for refused, says in ((other, "does not match its commitment"), (tmp_path / "none", "is no seed of a judging part")):
        status, said = call("reveal", refused)
        assert status == 2 and says in said and said.count("\n") == 1
    assert call("reveal", committed) == (0, f"revealed {version}: draw the next one with `commit`\n")
    revealed = tmp_path / "revealed" / f"{version}.json"
    assert read_secret(revealed, commitment, version) == read_secret(committed, commitment, version)
    assert stat.S_IMODE(revealed.stat().st_mode) & 0o444 == 0o444, "for everybody"
    status, said = call("reveal", committed)
    assert status == 2 and "has been revealed" in said and said.count("\n") == 1


def test_the_release_commits_to_a_seed_that_it_does_not_hold() -> None:
    card = read_card()
    assert len(bytes.fromhex(card.judging[card.version])) == 32
    assert not (benchmark_folder() / "revealed" / f"{card.version}.json").exists()


def test_every_revealed_seed_is_the_committed_one() -> None:
    card = read_card()
    for file in (benchmark_folder() / "revealed").glob("*.json"):
        assert read_secret(file, card.judging[file.stem], file.stem)


def test_inputs_have_numbers_of_their_own() -> None:
    numbers = {derive(seed, part, index) for seed in "ab" for part in ("telemetry", "logs") for index in range(10)}
    assert len(numbers) == 40 and all(0 <= number < 2**40 for number in numbers)
