"""`minder stacks` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minder.cli import main

SAMPLE = Path(__file__).resolve().parents[2] / "datasets" / "stacks" / "stopped_rank"


def test_json_is_one_document_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stacks", str(SAMPLE)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["evict"] == {"machines": ["lab-1"], "group": None}
    assert document["blame"] == "machine"
    assert document["suspects"][0]["rank"] == 1


def test_the_table_names_the_suspect(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stacks", str(SAMPLE), "--format", "table"]) == 0
    out = capsys.readouterr().out
    assert "suspect  lab-1" in out
    assert out.splitlines()[0] == "evict    lab-1"  # the answer first, then what led to it


@pytest.mark.parametrize("arguments", [["{tmp}"], ["{tmp}/nowhere"], [str(SAMPLE), "--format", "xml"], []])
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stacks", *(argument.replace("{tmp}", str(tmp_path)) for argument in arguments)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert len(output.err.strip().splitlines()) == 1


def test_a_job_file_that_does_not_fit_its_counts_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in SAMPLE.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "job.toml").write_text('machines = ["lab-0"]\ngpus_per_machine = 1\n[parallelism]\ndata = 4\n')
    assert main(["stacks", str(tmp_path)]) == 2
    assert "job.toml" in capsys.readouterr().err
