"""`minder simulate`: recordings from a recipe by name or file, one line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minder.cli import main

RECIPE = 'title = "small"\nseed = 4\ncount = 2\nduration_s = [200.0, 200.0]\n[job]\nmachines = [4, 4]\n[faults]\nonset_s = [60.0, 70.0]\n'


def test_recordings_and_their_truth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)
    out = tmp_path / "out"
    assert main(["simulate", str(tmp_path / "small.toml"), "--out", str(out), "--seed", "9", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["seed"] == 9 and [item["recording"] for item in document["recordings"]] == ["r0001", "r0002"]
    assert {path.name for path in (out / "r0001").iterdir()} == {"job.toml", "telemetry.parquet"}
    assert [item["recording"] for item in json.loads((out / "truth.json").read_text())] == ["r0001", "r0002"]


def test_a_shipped_recipe_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "hard", "--out", str(tmp_path / "out"), "--count", "1"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["recording", "machines", "metrics", "interval_s", "fault", "nuisances"]
    assert row.split()[0] == "r0001" and row.index(row.split()[1]) == head.index("machines")


@pytest.mark.parametrize(
    ("recipe", "hint"),
    [
        ("nosuch", "held-out-kinds"),
        ("gone.toml", "gone.toml is missing"),
        ("[job]\nmachines = [9, 4]\n", "job.machines"),
        ("[faults]\nkinds = ['meteor']\n", "meteor"),
        ("[job.levels]\nmood = [0.1, 0.2]\n", "levels has unknown names mood"),
        ("[job.levels]\ngpu_power_draw_watts = [100.0, 9000.0]\n", "levels.gpu_power_draw_watts lies between 0 and 720"),
        ("[faults]\nmix = 'fleet'\nkinds = ['link_flapping']\n", "link_flapping never happened"),
        ("colour = 3\n", "colour"),
        ("seed = [\n", "cannot be read"),
    ],
)
def test_a_bad_recipe_is_one_line_and_exit_2(recipe: str, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = recipe
    if "\n" in recipe:
        name = str(tmp_path / "bad.toml")
        text = recipe if "seed" in recipe else recipe.replace("colour", "title = 'x'\nseed = 1\ncolour")
        Path(name).write_text(text if "title" in text or "seed" in text else f"title = 'x'\nseed = 1\n{text}")
    assert main(["simulate", name, "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert hint in line
    assert not (tmp_path / "out").exists()


def test_a_folder_in_use_is_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "plain", "--out", str(tmp_path), "--count", "1"]) == 0
    assert main(["simulate", "plain", "--out", str(tmp_path), "--count", "1"]) == 2
    assert "not empty" in capsys.readouterr().err
