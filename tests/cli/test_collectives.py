"""`minder collectives`: one JSON document, a table, one line for bad input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from minder.cli import main

DATA = Path(__file__).parent.parent / "collectives" / "data"


def test_the_document_has_the_frozen_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collectives", str(DATA / "nccl" / "lock_gil_1st"), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) >= {"suspect_ranks", "order", "mismatches", "missing_ranks", "cause", "confidence"}
    assert document["suspect_ranks"] == [9, 14] and document["missing_ranks"] == []
    assert [item["rank"] for item in document["order"]] == [9, 14]
    frozen = {"rank", "process_group", "description", "last_enqueued", "last_completed", "peers_enqueued", "peers_completed"}
    assert set(document["order"][0]) >= frozen


def test_the_table_names_the_rank_and_what_it_is_behind_by(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collectives", str(DATA / "gloo" / "sleep"), "--format", "table"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("not launched") and any(line.split()[:1] == ["2"] for line in out.splitlines())


def test_a_bomb_among_the_dumps_makes_its_rank_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "dumps"
    shutil.copytree(DATA / "gloo" / "idle", folder)
    (folder / "rank_3.pkl").write_bytes(b"cposix\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR.")
    assert main(["collectives", str(folder)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["missing_ranks"] == [3] and "refused" in document["missing_reasons"]["3"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("arguments", [["/nowhere/at/all"], [".", "--format", "xml"]])
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collectives", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == "" and len(output.err.strip().splitlines()) == 1
