"""Steps from log lines, in the words of the frameworks."""

from __future__ import annotations

import math

import pytest

from minder.errors import BadInputError
from minder.signals.steps import StepLine, StepReader

MEGATRON = (
    " [2026-01-05 10:11:12] iteration      120/  500000 | consumed samples:        30720 | elapsed time per iteration (ms): 2510.4 | "
    "throughput per GPU (TFLOP/s/GPU): 410.2 | learning rate: 1.500000E-05 | global batch size:   256 | lm loss: 7.123456E+00 | "
    "loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (MEGATRON, StepLine(120, 7.123456, 1.234, 2.5104)),
        ("iter 10: loss 4.1234, time 123.45ms, mfu 12.34%", StepLine(10, 4.1234, None, 0.12345)),
        ("step   12 | loss: 6.12345 | lr 6.0000e-04 | norm: 1.2345 | dt: 250.00ms | tok/sec: 1000", StepLine(12, 6.12345, 1.2345, 0.25)),
        ("[rank0]:step: 30  loss:  7.6  grad_norm:  2.5  memory: 10GiB(5%)  tps: 7,000", StepLine(30, 7.6, 2.5, None)),
        ("steps: 40 loss: 2.5 iter time (s): 1.25 samples/sec: 12.8", StepLine(40, 2.5, None, 1.25)),
        ("{'loss': 2.5, 'grad_norm': 0.75, 'step': 50}", StepLine(50, 2.5, 0.75, None)),
        ('{"step": 60, "loss": 1.5e-1, "time": 12}', StepLine(60, 0.15, None, None)),
        ("\x1b[32mstep: \x1b[0m70  loss: 1.0", StepLine(70, 1.0, None, None)),
    ],
)
def test_lines_that_carry_a_step(line: str, expected: StepLine) -> None:
    assert StepReader().read(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        "loading checkpoint from step 100",
        "step 250: train loss 2.3012, val loss 2.4011",  # an evaluation, printed between training steps
        "{'train_runtime': 100.0, 'train_loss': 1.0}",
        "validation loss at iteration 100 | lm loss value: 7.0E+00 | lm loss PPL: 1.1E+03 |",
        "Epoch 3 done",
    ],
)
def test_lines_that_do_not(line: str) -> None:
    assert StepReader().read(line) is None


def test_a_trainers_dict_belongs_to_its_progress_bar() -> None:
    reader = StepReader()
    assert reader.read("{'loss': 2.5, 'grad_norm': 0.7, 'learning_rate': 5e-05, 'epoch': 0.01}") is None  # of which step?
    assert reader.read("  3%|3         | 12/400 [00:10<05:12,  1.25it/s]") == StepLine(12, seconds=0.8)
    assert reader.read("  3%|3         | 12/400 [00:10<05:12,  1.25it/s]") is None  # drawn again
    assert reader.read("{'loss': '2.5', 'grad_norm': '0.7', 'learning_rate': '5e-05'}") == StepLine(12, 2.5, 0.7, 0.8)
    assert reader.read("  3%|3         | 13/400 [00:12<09:12,  2.00s/it]") == StepLine(13, seconds=2.0)


def bar(step: int, total: int, elapsed: str = "00:10") -> str:
    return f"  {100 * step // total}%|###       | {step}/{total} [{elapsed}<05:12,  1.25it/s]"


def steps(reader: StepReader, *lines: str) -> list[int | None]:
    return [found.step if (found := reader.read(line)) is not None else None for line in lines]


def test_no_bar_hides_the_trainings_own() -> None:
    """Shards of a checkpoint, an evaluation that never draws its last step, then the training's bar again."""
    told = steps(StepReader(), bar(4, 4), bar(1, 400), bar(12, 400), bar(20, 900), bar(870, 900), bar(13, 400), bar(14, 400))
    assert None not in told and told == sorted(set(told))


def test_epochs_count_on() -> None:
    epochs = [bar(2, 3), bar(3, 3), bar(1, 2, "00:30"), bar(1, 3, "00:01"), bar(2, 3), bar(3, 3), bar(2, 2, "01:00"), bar(1, 3, "00:01")]
    assert steps(StepReader(), *epochs) == [2, 3, 4, 5, 6, 7, 8, 9]
    cut_short = [bar(300, 400, "05:00"), bar(1, 400, "00:01"), bar(2, 400, "00:02")]
    assert steps(StepReader(), *cut_short) == [300, 301, 302]


def test_another_rank_that_is_behind_is_no_step() -> None:
    assert steps(StepReader(), bar(12, 400), bar(11, 400), bar(13, 400), bar(12, 400), bar(14, 400)) == [12, None, 13, None, 14]


def test_numbers_and_bars_of_one_log_agree() -> None:
    reader = StepReader()
    assert steps(reader, bar(49, 400), "{'loss': 2.5, 'step': 50}", bar(50, 400), bar(51, 400)) == [49, 50, None, 51]
    assert steps(reader, bar(60, 900), "{'loss': 2.4, 'step': 52}", bar(52, 400)) == [111, 111, 112]
    assert steps(reader, "{'loss': 2.6, 'step': 41}", bar(42, 400, "00:00")) == [41, 42], "a step that falls is a job that began again"


def test_a_job_that_began_again_begins_its_bars_again() -> None:
    reader = StepReader()
    assert steps(reader, bar(350, 400)) == [350]
    reader.forget()
    assert steps(reader, bar(301, 400)) == [301]


def test_a_loss_that_is_nan_stays_visible() -> None:
    found = StepReader().read("iter 10: loss nan, time 1.00ms")
    assert found is not None and found.loss is not None and math.isnan(found.loss)


def test_a_sites_own_pattern() -> None:
    reader = StepReader(r"update=(?P<step>\d+) l=(?P<loss>\S+) g=(?P<grad_norm>\S+) t=(?P<milliseconds>\d+)")
    assert reader.read("12:00 update=7 l=0.5 g=x t=250") == StepLine(7, 0.5, None, 0.25)
    assert reader.read(MEGATRON) is None


@pytest.mark.parametrize("pattern", ["(", r"update=(\d+)"])
def test_a_pattern_that_cannot_work_is_refused(pattern: str) -> None:
    with pytest.raises(BadInputError):
        StepReader(pattern)
