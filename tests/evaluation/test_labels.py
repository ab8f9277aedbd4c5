"""Recordings meet their truth by name; whatever does not fit is one line, and the others are still evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minder.model.errors import BadInputError
from minder.offline.evaluation.labels import find_recordings, label_recordings

ONSET = "2026-03-02T06:12:04Z"


def recording(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "job.toml").write_text('name = "x"\nmachines = ["m0"]\n')
    return folder


def truth(path: Path, *entries: dict[str, Any]) -> Path:
    path.write_text(json.dumps(list(entries)))
    return path


def entry(name: str, fault: str | None = "hang", machine: str | None = "m0", onset: str | None = ONSET) -> dict[str, Any]:
    return {"recording": name, "fault": fault, "machine": machine, "onset": onset}


def test_a_folder_of_recordings_stands_for_them_and_each_counts_once(tmp_path: Path) -> None:
    first, second = recording(tmp_path / "set" / "a"), recording(tmp_path / "set" / "b")
    assert find_recordings([tmp_path / "set", first]) == [first, second]
    assert find_recordings([tmp_path / "nowhere"]) == [tmp_path / "nowhere"]


def test_truth_is_found_inside_beside_or_where_it_is_named(tmp_path: Path) -> None:
    inside, beside = recording(tmp_path / "set" / "inside"), recording(tmp_path / "set" / "beside")
    (inside / "truth.json").write_text(json.dumps(entry("the name it had elsewhere", "crash")))
    truth(tmp_path / "set" / "truth.json", entry("beside"))
    labelled, problems = label_recordings([inside, beside])
    assert [(item.truth.recording, item.truth.fault) for item in labelled] == [("inside", "crash"), ("beside", "hang")]
    assert problems == []
    named = truth(tmp_path / "other.json", entry("inside", "named"), entry("beside", None, None, None))
    labelled, problems = label_recordings([inside, beside], named)
    assert [item.truth.fault for item in labelled] == ["named", None]


@pytest.mark.parametrize(
    ("entries", "word"),
    [
        ([], "has no truth"),
        ([entry("r"), entry("stranger")], 'names recording "stranger"'),
        ([entry("r"), entry("r", "crash")], "twice"),
        ([entry("r", onset=None)], "without an onset"),
        ([entry("r", fault=None)], "no fault"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path: Path, entries: list[dict[str, Any]], word: str) -> None:
    folder = recording(tmp_path / "r")
    _, problems = label_recordings([folder], truth(tmp_path / "truth.json", *entries))
    (line,) = problems
    assert word in line and "\n" not in line


def test_a_part_of_a_set_is_evaluated_without_complaint_about_the_rest(tmp_path: Path) -> None:
    first = recording(tmp_path / "a")
    recording(tmp_path / "b")
    truth(tmp_path / "truth.json", entry("a"), entry("b"))
    labelled, problems = label_recordings([first])
    assert (len(labelled), problems) == (1, [])


def test_recordings_of_one_name_are_told_apart_by_nobody(tmp_path: Path) -> None:
    paths = [recording(tmp_path / side / "r") for side in ("left", "right")]
    for path in paths:
        (path / "truth.json").write_text(json.dumps(entry("r")))
    labelled, problems = label_recordings(paths)
    assert len(labelled) == 1 and "rename" in problems[0]


@pytest.mark.parametrize("content", [None, "no json"])
def test_a_named_truth_that_cannot_be_read_stops_everything(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "truth.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadInputError, match="truth"):
        label_recordings([recording(tmp_path / "r")], path)


def test_a_folder_of_sets_names_the_sets(tmp_path: Path) -> None:
    for name in ("plain", "hard"):
        recording(tmp_path / "recordings" / name / "r0001")
    labelled, problems = label_recordings(find_recordings([tmp_path / "recordings"]))
    where = tmp_path / "recordings"
    assert labelled == [] and problems == [f"{where} holds no recordings, its folders do: name {where}/hard and the others"]


def test_the_folder_of_a_run_names_its_recording(tmp_path: Path) -> None:
    inside = recording(tmp_path / "hang-seed0-1" / "recording")
    (tmp_path / "hang-seed0-1" / "job.toml").write_text("")
    labelled, problems = label_recordings(find_recordings([tmp_path]))
    assert labelled == [] and problems == [f"{inside.parent} is the folder of a run: name its recording, {inside}"]
