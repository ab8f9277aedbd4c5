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
