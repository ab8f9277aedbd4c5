from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from minder.cli import main
from minder.edge.data.audit import Audit, audit
from minder.edge.data.order import fingerprint
from minder.edge.data.plan import Plan, Share
from minder.edge.data.position import Position
from minder.edge.data.reading import read_logs
from minder.edge.data.record import StepRecord, record_path
from minder.model.errors import BadInputError, DataError

PLAN = Plan(samples=60, global_batch=6, seed=3)


def write(folder: Path, rank: int, world: int, steps: range, *, generation: int = 1, skipped: tuple[range, ...] = ()) -> StepRecord:
    """A process of a rank that trains on these steps of the plan."""
    position = Position(steps.start - 1, skipped)
    about = {**position.state(PLAN), "epochs": None, "rank": rank, "world": world, "generation": generation}
    record = StepRecord(folder, rank, about)
    for step in steps:
        batch = position.unit(step - 1, 1).batch
        record.step(step, batch, fingerprint(PLAN.samples_of(batch, Share(rank, world))))
    return record


def run(folder: Path, world: int, steps: range, **options: object) -> None:
    for rank in range(world):
        write(folder, rank, world, steps, **options).close()  # type: ignore[arg-type]


def checked(folder: Path) -> Audit:
    return audit(read_logs(folder))


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(1000.0)
    monkeypatch.setattr("minder.edge.data.record.time.time", lambda: next(ticks))


def test_a_run_that_shrinks_grows_and_trains_steps_again_is_right(tmp_path: Path) -> None:
    run(tmp_path, 3, range(1, 21))
    run(tmp_path, 2, range(16, 31), generation=2)
    run(tmp_path, 3, range(26, 41), generation=3)
    found = checked(tmp_path)
    assert (found.problems, found.unknown, found.steps, found.is_right) == ((), (), (1, 40), True)
    assert [(start.generation, start.world, start.step) for start in found.starts] == [(1, 3, 0), (2, 2, 15), (3, 3, 25)]


def test_steps_that_a_later_start_abandoned_do_not_count(tmp_path: Path) -> None:
    run(tmp_path, 3, range(1, 31))
    run(tmp_path, 2, range(11, 14), generation=2)
    found = checked(tmp_path)
    assert (found.steps, found.is_right) == ((1, 13), True)


def test_the_same_generation_may_start_twice(tmp_path: Path) -> None:
    """Where nothing counts generations, two starts from one checkpoint have one number."""
    for _ in range(2):
        run(tmp_path, 2, range(1, 11))
    run(tmp_path, 2, range(6, 9))
    assert (checked(tmp_path).steps, checked(tmp_path).is_right) == ((1, 8), True)


def test_a_process_that_outlives_its_successors_start_counts_no_more(tmp_path: Path) -> None:
    old = write(tmp_path, 0, 1, range(1, 11))
    run(tmp_path, 1, range(6, 9), generation=2)
    old.step(11, 3, 0)
    assert (checked(tmp_path).steps, checked(tmp_path).is_right) == ((1, 8), True)


def test_gaps_duplicates_and_other_samples_are_found(tmp_path: Path) -> None:
    record = write(tmp_path, 0, 1, range(1, 6))
    for step, batch in ((6, 6), (7, 7), (8, 7), (9, 8)):
        record.step(step, batch, fingerprint(PLAN.samples_of(batch, Share(0, 1))) + (batch == 8))
    assert checked(tmp_path).problems == (
        "gap: no step trained on batch 5",
        "duplicate: 2 steps trained on batch 7",
        "step 9, rank 0: other samples were read than those of batch 8",
    )


def test_ranks_that_disagree_are_found(tmp_path: Path) -> None:
    run(tmp_path, 2, range(1, 4))
    write(tmp_path, 0, 2, range(4, 6), generation=2)
    write(tmp_path, 1, 2, range(4, 6), generation=2, skipped=(range(3, 4),))
    assert "step 4: ranks trained on different batches (3, 4)" in checked(tmp_path).problems


def test_skipped_batches_are_no_gap(tmp_path: Path) -> None:
    run(tmp_path, 2, range(1, 9))
    run(tmp_path, 2, range(5, 9), generation=2, skipped=(range(5, 7),))
    assert checked(tmp_path).is_right


def test_a_missing_line_is_unknown_but_for_the_step_under_way(tmp_path: Path) -> None:
    run(tmp_path, 2, range(1, 9))
    path = record_path(tmp_path, 1)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], "1 cut o", *lines[5:-1]]) + "\n")
    found = checked(tmp_path)
    assert (found.problems, found.is_right) == ((), False)
    assert found.unknown == ("1 lines of rank 1 cannot be read", "no line of rank 1 for step 3-4")


def test_a_log_is_bounded_and_what_is_left_is_still_checked(tmp_path: Path) -> None:
    about = {**Position().state(PLAN), "epochs": None, "rank": 0, "world": 1, "generation": 1}
    record = StepRecord(tmp_path, 0, about, most_bytes=4000)
    for step in range(1, 300):
        record.step(step, step - 1, fingerprint(PLAN.samples_of(step - 1)))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4000
    found = checked(tmp_path)
    assert found.is_right and found.steps is not None and found.steps[0] > 1 and found.steps[1] == 299


def test_the_command_says_which_samples_a_step_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, 2, range(1, 6))
    write(tmp_path, 0, 2, range(6, 7)).replaced(6, "killed by SIGKILL")
    assert main(["job", "data", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "60 samples shuffled, 6 a step, seed 3",
        "generation 1: 2 ranks, after step 0",
        "loader processes replaced: 1 killed by SIGKILL",
        "steps 1 to 6: no gap, no duplicate; samples of 6 steps compared",
    ]
    assert main(["job", "data", str(tmp_path), "--step", "4", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["ranks"]
    assert [sample for rank in ("0", "1") for sample in found[rank]["samples"]] == PLAN.samples_of(3)
    record_path(tmp_path, 1).unlink()
    assert main(["job", "data", str(tmp_path), "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["last_step"], document["problems"], document["unknown"]) == (6, [], ["no line of rank 1 for step 1-5"])


def test_a_folder_or_a_step_without_lines_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no log of a rank"):
        read_logs(tmp_path)
    run(tmp_path, 1, range(1, 3))
    from minder.edge.data.reading import samples_of_step

    with pytest.raises(BadInputError, match="step 9 is not in the log, which has steps 1 to 2"):
        samples_of_step(read_logs(tmp_path), 9)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="give a log_dir that can be"):
        write(tmp_path / "file", 0, 1, range(1, 2))
