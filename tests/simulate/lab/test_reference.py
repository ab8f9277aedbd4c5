from __future__ import annotations

import json
from pathlib import Path

import pytest

from minder.model.errors import LabError
from minder.simulate.lab.reference import compare_losses


def _write(folder: Path, losses: list[tuple[int, int, float]], sha256: str = "aa") -> Path:
    folder.mkdir()
    lines = [json.dumps({"step": step, "generation": generation, "loss": loss.hex(), "time": 0.0}) for step, generation, loss in losses]
    (folder / "losses.jsonl").write_text("".join(line + "\n" for line in lines))
    (folder / "final.json").write_text(json.dumps({"parameters_sha256": sha256, "ranks_agree": True}))
    return folder


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return _write(tmp_path / "reference", [(1, 0, 3.0), (2, 0, 2.5), (3, 0, 2.25)])


def test_a_run_that_took_steps_again_is_equal(tmp_path: Path, reference: Path) -> None:
    run = _write(tmp_path / "run", [(1, 0, 3.0), (2, 0, 2.5), (2, 1, 2.5), (3, 1, 2.25)])
    comparison = compare_losses(run, reference)
    assert (comparison.equal, comparison.first_difference, comparison.steps) == (True, None, 3)


@pytest.mark.parametrize(
    ("losses", "step"),
    [
        ([(1, 0, 3.0), (2, 0, 2.5), (3, 0, 2.2500000000000004)], 3),
        ([(1, 0, 3.0), (2, 0, 2.6), (2, 1, 2.5), (3, 1, 2.25)], 2),  # an earlier generation already parted
        ([(1, 0, 3.0), (3, 0, 2.25)], 2),
        ([(1, 0, 3.0), (2, 0, 2.5), (3, 0, 2.25), (4, 0, 2.0)], 4),
        ([(1, 0, 3.0), (2, 0, 2.5), (3, 0, float("nan"))], 3),
        ([], 1),
    ],
)
def test_the_first_difference_is_named(tmp_path: Path, reference: Path, losses: list[tuple[int, int, float]], step: int) -> None:
    comparison = compare_losses(_write(tmp_path / "run", losses), reference)
    assert not comparison.equal
    assert comparison.first_difference == step
    assert str(step) in comparison.detail


def test_other_parameters_at_the_end_are_a_difference(tmp_path: Path, reference: Path) -> None:
    run = _write(tmp_path / "run", [(1, 0, 3.0), (2, 0, 2.5), (3, 0, 2.25)], sha256="bb")
    assert "parameters" in compare_losses(run, reference).detail
    (run / "final.json").unlink()
    assert not compare_losses(run, reference).equal


def test_a_reference_without_losses_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="remove it"):
        compare_losses(_write(tmp_path / "run", [(1, 0, 3.0)]), tmp_path / "nowhere")
