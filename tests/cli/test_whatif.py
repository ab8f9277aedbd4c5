"""`minder whatif` from the command line: its output, and one line for everything that can be wrong with a trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

from minder.cli import main


@pytest.fixture(scope="module")
def generator(load_file: Callable[[Path], ModuleType]) -> ModuleType:
    return load_file(Path(__file__).parents[1] / "collectives" / "whatif" / "generator.py")


@pytest.fixture(scope="module")
def job(generator: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    settings = generator.Job(dp=2, pp=2, microbatches=4, steps=3, worker={(1, 0): 1.8})
    trace, meta = generator.write_job(settings, tmp_path_factory.mktemp("job"))
    return trace, meta


def test_json_is_one_document(job: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", str(job[0]), "--job", str(job[1])]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    document = json.loads(output.out)
    assert document["blame"] == [{"dp_rank": 1, "stage": 0}] and document["slowdown"] > 1.2


def test_the_table_names_and_advises(job: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", str(job[0]), "--job", str(job[1]), "--format", "table"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("cause         worker\n")
    assert "dp rank 1 of stage 0 (global rank 1)" in text


def test_the_picture_is_written(job: tuple[Path, Path], tmp_path: Path) -> None:
    assert main(["whatif", str(job[0]), "--job", str(job[1]), "--picture", str(tmp_path / "map.png")]) == 0
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written_is_one_line(job: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", str(job[0]), "--job", str(job[1]), "--picture", str(tmp_path / "no" / "map.png")]) == 2
    assert "map.png" in only_line(capsys)


def only_line(capsys: pytest.CaptureFixture[str]) -> str:
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    return line


def first(**cell: object) -> pl.Expr:
    expression = pl.lit(True)
    for column, value in cell.items():
        expression = expression & (pl.col(column).cast(pl.String) == str(value))
    return expression


A_ROW = first(dp_rank=1, stage=1, step=10, optype="forward-compute", seq_id=2)
SPOILED: dict[str, tuple[Callable[[pl.DataFrame], pl.DataFrame], str]] = {
    "a missing column": (lambda frame: frame.drop("gmc", "mc"), "columns mc, gmc"),
    "no rows": (lambda frame: frame.head(0), "no rows"),
    "a NaN": (lambda frame: spoil(frame, "duration", float("nan")), "forward-compute 2 of dp_rank 1, stage 1, step 10"),
    "a negative duration": (lambda frame: spoil(frame, "duration", -0.5), "duration is -0.5 s"),
    "an infinite start": (lambda frame: spoil(frame, "start_ts", float("inf")), "start_ts is inf s"),
    "a null": (lambda frame: frame.with_columns(pl.when(A_ROW).then(None).otherwise(pl.col("stage")).alias("stage")), "has no stage"),
    "text for numbers": (lambda frame: frame.with_columns(pl.col("step").cast(pl.String)), "column step holds String"),
    "a missing operation": (lambda frame: frame.filter(~A_ROW), "forward-compute 2 of stage 1 is missing on dp_rank 1 in step 10"),
    "a missing worker": (lambda frame: frame.filter(~first(dp_rank=1, stage=1)), "is missing on dp_rank 1"),
    "a missing stage": (lambda frame: frame.filter(pl.col("stage") == 0), "pp_size 2"),
    "a missing data-parallel rank": (lambda frame: frame.filter(pl.col("dp_rank") == 0), "dp_size 2"),
    "duplicate rows": (lambda frame: pl.concat([frame, frame.filter(A_ROW)]), "is there 2 times"),
    "no backward": (lambda frame: frame.filter(pl.col("optype") != "backward-compute"), "no backward-compute rows"),
    "sends without receives": (lambda frame: frame.filter(pl.col("optype") != "forward-recv"), "forward-recv"),
    "steps numbered through": (lambda frame: frame.with_columns(pl.int_range(pl.len()).alias("seq_id")), "seq_id should restart"),
    "wrong microbatches": (
        lambda frame: frame.with_columns(pl.when(pl.col("mb_id") == 3).then(2).otherwise(pl.col("mb_id")).alias("mb_id")),
        "microbatches",
    ),
}


def spoil(frame: pl.DataFrame, column: str, value: float) -> pl.DataFrame:
    return frame.with_columns(pl.when(A_ROW).then(value).otherwise(pl.col(column)).alias(column))


@pytest.mark.parametrize("what", SPOILED)
def test_a_spoiled_trace_is_one_clear_line(what: str, job: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, said = SPOILED[what]
    change(pl.read_parquet(job[0])).write_parquet(tmp_path / "spoiled.parquet")
    assert main(["whatif", str(tmp_path / "spoiled.parquet"), "--job", str(job[1]), "--format", "json"]) == 2
    assert said in only_line(capsys)


def test_one_stage_whose_microbatches_lack_a_backward_is_one_clear_line(
    generator: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without pipeline there are no transfers that would miss it."""
    trace, meta = generator.write_job(generator.Job(dp=2, pp=1, microbatches=4, steps=3), tmp_path)
    frame = pl.read_parquet(trace)
    frame.filter(~((pl.col("optype") == "backward-compute") & (pl.col("mb_id") == 3))).write_parquet(trace)
    assert main(["whatif", str(trace), "--job", str(meta)]) == 2
    assert "forward-compute of 4 microbatches and backward-compute of 3" in only_line(capsys)


@pytest.mark.parametrize("kept", [0, 3, 500, -20])
def test_a_cut_off_file_is_one_clear_line(kept: int, job: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(job[0].read_bytes()[:kept])
    assert main(["whatif", str(cut), "--job", str(job[1])]) == 2
    assert "cut.parquet" in only_line(capsys)


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ("dp_size: 2\npp_size: 2\ntp_size: 4\nworld_size: 4\n", "world_size is 4, but dp 2 x pp 2 x tp 4 x dsp 1 is 16"),
        ("dp_size: 4\npp_size: 2\nworld_size: 8\n", "dp_size 4"),
        ("dp_size: 2\npp_size: 2\nvpp_size: 2\n", "vpp_size 2"),
        ("dp_size: 2\n", "lacks pp_size"),
        ("dp_size: two\npp_size: 2\n", "dp_size is 'two'"),
        ("dp_size: 2\npp_size: 0\n", "pp_size is 0"),
        ("just words", "one line"),
        ("dp_size: [2\n", "is not YAML"),
    ],
)
def test_a_job_file_that_is_wrong_is_one_clear_line(
    meta: str, said: str, job: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "meta.yaml").write_text(meta, encoding="utf-8")
    assert main(["whatif", str(job[0]), "--job", str(tmp_path / "meta.yaml")]) == 2
    assert said in only_line(capsys)


def test_files_that_are_not_there_are_one_clear_line(job: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", str(tmp_path / "none.parquet"), "--job", str(job[1])]) == 2
    assert "none.parquet" in only_line(capsys)
    assert main(["whatif", str(job[0]), "--job", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in only_line(capsys)
    assert main(["whatif", str(tmp_path), "--job", str(job[1])]) == 2
    assert "no rows" in only_line(capsys)


def test_an_operation_that_the_schema_does_not_know_is_left_out_and_said(
    job: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pl.read_parquet(job[0]).with_columns(pl.col("optype").cast(pl.String))
    extra = frame.filter(pl.col("optype") == "gc").with_columns(pl.lit("evaluate").alias("optype"))
    pl.concat([frame, extra]).write_parquet(tmp_path / "more.parquet")
    assert main(["whatif", str(tmp_path / "more.parquet"), "--job", str(job[1]), "--format", "table"]) == 0
    assert "left out      evaluate" in capsys.readouterr().out


def test_a_last_step_that_is_cut_off_is_left_out_and_said(
    job: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pl.read_parquet(job[0])
    last = frame["step"].max()
    ends = frame.filter(pl.col("step") == last)["start_ts"].median()
    frame.filter(pl.col("step") != last).write_parquet(tmp_path / "without.parquet")
    frame.filter((pl.col("step") != last) | (pl.col("start_ts") < ends)).write_parquet(tmp_path / "cut.parquet")
    documents = []
    for name in ("without", "cut"):
        assert main(["whatif", str(tmp_path / f"{name}.parquet"), "--job", str(job[1])]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert [document.pop("cut_off_step") for document in documents] == [None, last]
    assert documents[0] == documents[1]
    assert main(["whatif", str(tmp_path / "cut.parquet"), "--job", str(job[1]), "--format", "table"]) == 0
    assert f"left out      step {last}" in capsys.readouterr().out
