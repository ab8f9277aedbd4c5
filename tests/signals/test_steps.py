"""Steps from log lines, in the words of the frameworks."""

from __future__ import annotations

import math
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from minder.edge.signals.log_prefix import strip_prefix
from minder.edge.signals.step_rules import load_step_rules
from minder.edge.signals.steps import StepLine, StepReader
from minder.model.errors import BadInputError

MEGATRON = (
    " [2026-01-05 10:11:12] iteration      120/  500000 | consumed samples:        30720 | elapsed time per iteration (ms): 2510.4 | "
    "throughput per GPU (TFLOP/s/GPU): 410.2 | learning rate: 1.500000E-05 | global batch size:   256 | lm loss: 7.123456E+00 | "
    "loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)


LINES = tomllib.loads((Path(__file__).parent / "data" / "step_lines.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", LINES["step"], ids=lambda row: row["trainer"])
def test_a_line_of_a_trainer_tells_its_step(row: dict[str, Any]) -> None:
    found = StepReader().read(row["line"])
    assert found is not None and found.step == row["step"]
    if "loss" in row:
        assert found.loss == row["loss"]
    if "seconds" in row:
        assert found.seconds == pytest.approx(row["seconds"])


@pytest.mark.parametrize("line", LINES["none"][0]["lines"])
def test_a_line_that_is_no_training_step(line: str) -> None:
    assert StepReader().read(line) is None


def test_every_rule_has_a_line_that_it_reads() -> None:
    rules = load_step_rules()
    read = [strip_prefix(row["line"])[1] for row in LINES["step"]]
    used = {found[0].trainer for line in read if (found := rules.find(line)) is not None}
    assert {rule.trainer for rule in rules.rules} - used == set()


@pytest.mark.parametrize(
    "label",
    ["[rank0]:", "[default0]:", "0: ", "(RayTrainWorker pid=4211, ip=10.0.0.7) ", "2026-01-05 10:11:12,345 - INFO - ", "[10:11:12] ",
     "\x1b[36m(TrainerActor pid=4211)\x1b[0m ", "node-3: ", "[1,0]<stdout>:", "[prterun-n1-7@1,0]<stdout>:",
     "(train, rank=0, pid=11, ip=10.0.0.7) ", "train/0 ", "2026-01-05T10:11:12.345678Z "],
)  # fmt: skip
def test_what_stands_before_a_line_does_not_matter(label: str) -> None:
    assert StepReader().read(label + "iter 10: loss 4.5, time 100ms") == StepLine(10, 4.5, None, 0.1)
    assert StepReader().read(label + "Epoch 0:  12%|█▏        | 12/100 [00:10<01:12,  1.25it/s]") == StepLine(12, seconds=0.8)
    assert StepReader().read(label + "Loading checkpoint shards: 100%|██████████| 4/4 [00:03<00:00,  1.25it/s]") is None


@pytest.mark.parametrize(
    ("text", "loss"), [("2,3101", 2.3101), ("2.3101", 2.3101), ("1.234,5", 1234.5), ("1,234.5", 1234.5), ("2,310", None), ("0,310", 0.31),
                       ("nan", math.nan), ("2.3e-1", 0.23), ("1,2,3", None)],
)  # fmt: skip
def test_a_loss_that_can_be_read_in_two_ways_is_unknown(text: str, loss: float | None) -> None:
    found = StepReader().read(f"step 12 | loss {text} | lr 1e-4")
    assert found is not None and found.step == 12
    assert found.loss == loss or (loss is not None and math.isnan(loss) and math.isnan(found.loss or 0.0))


@pytest.mark.parametrize(
    ("text", "step"), [("1,200", 1200), ("1_200", 1200), ("1'200", 1200), ("1,200/5,000", 1200), ("12.5", None), ("12,5", None)]
)
def test_a_step_with_thousands_separators(text: str, step: int | None) -> None:
    found = StepReader().read(f"iteration {text} | loss 2.5")
    assert (None if found is None else found.step) == step


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


def test_an_evaluation_inside_the_trainings_bar_is_no_step() -> None:
    """Also one that never draws its last step."""
    read = steps(StepReader(), bar(1, 400, "00:01"), bar(12, 400), bar(20, 900), bar(870, 900), bar(13, 400), bar(14, 400))
    assert read == [1, 12, None, None, 13, 14]
    two = [bar(1, 400, "00:01"), bar(20, 400), bar(50, 50, "00:04"), bar(9, 70, "00:02"), bar(70, 70, "00:04"), bar(21, 400, "00:29")]
    assert steps(StepReader(), *two) == [1, 20, None, None, None, 21]


def test_a_log_that_is_taken_up_in_an_evaluation_goes_on_when_training_does() -> None:
    read = steps(StepReader(), bar(20, 900, "00:02"), bar(900, 900, "01:00"), bar(13, 400, "05:10"), bar(14, 400), bar(15, 400))
    assert read == [20, 900, None, 901, 902]


def test_epochs_count_on() -> None:
    epochs = [bar(2, 3), bar(3, 3), bar(1, 2, "00:30"), bar(1, 3, "00:01"), bar(2, 3), bar(3, 3), bar(2, 2, "01:00"), bar(1, 3, "00:01")]
    assert steps(StepReader(), *epochs) == [2, 3, None, 4, 5, 6, None, 7]
    cut_short = [bar(300, 400, "05:00"), bar(1, 400, "00:01"), bar(2, 400, "00:02")]
    assert steps(StepReader(), *cut_short) == [300, 301, 302]
    lightning = [f"Epoch {epoch}:{bar(step, 100)}" for epoch in range(3) for step in (50, 100)]
    assert steps(StepReader(), *lightning, f"Validation DataLoader 0:{bar(3, 10)}", f"Epoch 3:{bar(1, 100)}") == [
        50,
        100,
        150,
        200,
        250,
        300,
        None,
        301,
    ]
    assert steps(StepReader(), f"Epoch 0:{bar(100, 100)}", f"Epoch 1:{bar(50, 60)}", f"Epoch 1:{bar(60, 60)}") == [100, 150, 160]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([f"[epoch={epoch}][batch={batch}/100]:" for epoch, batch in ((1, 50), (1, 100), (2, 5), (3, 5))], [50, 100, 105, 205]),
        (["[epoch=1][batch=100/100]:", "[epoch=2][batch=100/100]:"], [100, 200]),
        (["| epoch 001:    90 / 100 loss=2.5", "| epoch 002:    10 / 100 loss=2.4"], [90, 110]),
        ([f"Epoch [{epoch}/3], Step [{step}/600], Loss: 2.5" for epoch in (1, 2) for step in (300, 600)], [300, 600, 900, 1200]),
        ([f"Epoch [{epoch}/3], Step [{step}/1800], Loss: 2.5" for epoch, step in ((1, 300), (1, 600), (2, 900))], [300, 600, 900]),
        ([f"Epoch: {epoch} step: {step} loss: 2.5" for epoch in (0, 1) for step in (0, 1, 2)], [0, 1, 2, 3, 4, 5]),
        ([f"step {step}/90 loss 2.5" for step in (10, 50, 90, 10, 20)], [10, 50, 90, 100, 110]),
        ([f"Training epoch {epoch}, iteration {step}/99 | lr: 1e-5" for epoch in (0, 1) for step in (9, 99)], [9, 99, 108, 198]),
    ],
    ids=["Composer", "Composer, each epoch's end", "fairseq", "tutorial", "through the job", "from 0", "no epoch", "NeMo"],
)  # fmt: skip
def test_a_counter_that_begins_again_with_each_epoch_counts_on(lines: list[str], expected: list[int]) -> None:
    assert steps(StepReader(), *lines) == expected


def test_a_step_that_falls_to_a_checkpoint_is_a_job_that_began_again() -> None:
    reader = StepReader()
    assert steps(reader, *(f"iteration {step}/ 9000 | lm loss: 2.5 |" for step in (100, 110, 120, 90, 100))) == [100, 110, 120, 90, 100]
    assert steps(StepReader(), "{'loss': 2.5, 'step': 50}", "{'loss': 2.5, 'step': 52}", "{'loss': 2.6, 'step': 41}") == [50, 52, 41]


def test_another_rank_that_is_behind_is_no_step() -> None:
    assert steps(StepReader(), bar(12, 400), bar(11, 400), bar(13, 400), bar(12, 400), bar(14, 400)) == [12, None, 13, None, 14]
    ranks = [f"[rank{rank}]: step {step} loss 2.5" for step, rank in ((1, 0), (1, 1), (2, 0), (2, 1), (3, 1), (3, 0))]
    assert steps(StepReader(), *ranks) == [1, None, 2, None, 3, None]
    assert steps(StepReader(), *(f"step {step} loss 2.5" for step in (20, 21, 20, 22))) == [20, 21, None, 22]


def test_each_rank_of_one_log_counts_for_itself() -> None:
    """Their output is buffered: a rank's hundred lines come at once, long after another's."""
    block = [[f"[rank{rank}]: step {step} loss 2.5" for step in range(1, 30)] for rank in (0, 1)]
    assert steps(StepReader(), *block[0], *block[1]) == [*range(1, 30), *[None] * 29]
    reader, at_s = StepReader(), 0.0
    read = []
    for step in (10, 11, 12, 10, 13, 11, 14, 12, 15):  # two ranks, and no label says whose a line is
        at_s += 0.5
        found = reader.read(f"step={step} loss=2.5", at_s)
        read.append(None if found is None else found.step)
    assert read == [10, 11, 12, None, 13, None, 14, None, 15]
    found = reader.read("step=10 loss=2.5", at_s + 60.0)
    assert found is not None and found.step == 10, "after a minute it is the job that began again"


def test_a_process_that_takes_the_place_of_another_is_read() -> None:
    """Ray starts an actor again under another pid, from an older checkpoint."""
    reader = StepReader()
    read = [reader.read(f"(TrainWorker pid=11) step {step} loss 2.5", float(step)) for step in range(100, 120)]
    read += [reader.read(f"(TrainWorker pid=99) step {step} loss 2.5", 100.0 + step) for step in range(90, 94)]
    assert [found.step if found is not None else None for found in read] == [*range(100, 120), None, 91, 92, 93]


def number(step: int) -> str:
    return f"step {step} loss 2.5"


def test_numbers_and_bars_of_one_log_agree() -> None:
    assert steps(StepReader(), bar(49, 400), "{'loss': 2.5, 'step': 50}", bar(50, 400), bar(51, 400)) == [49, 50, None, 51]
    beside = [number(1), bar(1, 400, "00:01"), number(2), bar(2, 400, "00:02"), bar(3, 400, "00:03"), number(3), bar(4, 400, "00:04")]
    assert steps(StepReader(), *beside) == [1, None, 2, None, 3, 3, 4]


def test_the_bar_of_an_evaluation_beside_numbered_steps_is_no_step() -> None:
    evaluation = [bar(1, 50, "00:00"), bar(14, 50), bar(50, 50)]
    assert steps(StepReader(), number(11), number(12), *evaluation, number(13), *evaluation, number(14)) == [
        11, 12, None, None, None, 13, None, None, None, 14,
    ]  # fmt: skip
    assert steps(StepReader(), bar(1, 50), bar(50, 50), number(1), number(2)) == [1, 50, 51, 52], "never a step that falls"


def test_numbers_that_are_printed_late_do_not_disturb_the_bar() -> None:
    late = [number(step) for step in (10, 20, 30)]
    assert steps(StepReader(), bar(1, 400), bar(100, 400), *late, bar(101, 400)) == [1, 100, None, None, None, 101]


def test_the_loss_on_a_line_of_its_own_belongs_to_the_step_above() -> None:
    reader = StepReader()
    assert reader.read("2026-01-05T10:11:12Z node-3 olmo.train:920 INFO [step=12/1000,epoch=0]") == StepLine(12)
    assert reader.read("    train/CrossEntropyLoss=2.310") == StepLine(12, 2.31)
    assert reader.read("    optim/total_grad_norm=0.25") is None
    reader = StepReader()
    assert reader.read("\t Train loss/train/total: 2.3010") is None, "of which step?"
    assert reader.read("[batch=12/4800]:") == StepLine(12)
    assert reader.read("\t Train loss/train/total: 2.3010") == StepLine(12, 2.301)


def test_dictionaries_without_a_step_are_counted_and_nothing_more() -> None:
    """Trainer with disable_tqdm=True."""
    reader = StepReader()
    assert steps(reader, *("{'loss': 2.5, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}" for _ in range(3))) == [None] * 3
    assert reader.unnumbered == 3


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


LABELS = [
    "[default{rank}]:",
    "[node0:{rank}]: ",
    "[pod/llm-{rank}/pytorch] ",
    '2026-01-05T10:11:12Z {{app="train", pod="llm-{rank}", container="pytorch"}} ',
    "[pod/llm-0/pytorch] [rank{rank}]: ",
    "(pid=7{rank}, ip=10.0.0.4) ",
    "(Worker pid=7{rank}) [repeated 2x across cluster] ",
    "10.0.0.{rank}: ",
    "",
]


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("pattern", [None, r"update=(?P<step>\d+)"], ids=["the rules", "a site's pattern"])
def test_ranks_that_print_late_are_no_job_that_began_again(label: str, pattern: str | None) -> None:
    """A site's own pattern saw one at every line: the number fell."""
    text = "update={} " if pattern else "iteration {}/ 1000 | lm loss: 2.1E+00 |"
    reader = StepReader(pattern)
    seen = [reader.read(label.format(rank=rank) + text.format(step - 3 * rank), float(step)) for step in range(10, 30) for rank in (0, 1)]
    assert [found.step for found in seen if found is not None] == list(range(10, 30))


@pytest.mark.parametrize("pattern", [None, r"update=(?P<step>\d+)"], ids=["the rules", "a site's pattern"])
def test_one_rank_that_began_again_after_a_while_is_read(pattern: str | None) -> None:
    text = "[default0]: update={} " if pattern else "[default0]: iteration {}/ 1000 | lm loss: 2.1E+00 |"
    reader = StepReader(pattern)
    seen = [reader.read(text.format(step), now_s) for step, now_s in ((20, 1.0), (21, 2.0), (10, 60.0), (11, 61.0))]
    assert [found.step for found in seen if found is not None] == [20, 21, 10, 11]


@pytest.mark.parametrize("line", ["[epoch1:20] loss: 2.3", "[10] loss: 2.3", "[trainer.py:120] step: 4", "[1, 2000] loss: 2.196"])
def test_a_bracket_with_a_number_is_not_always_a_label(line: str) -> None:
    assert strip_prefix(line) == ("", line)


@pytest.mark.parametrize("pattern", ["(", r"update=(\d+)"])
def test_a_pattern_that_cannot_work_is_refused(pattern: str) -> None:
    with pytest.raises(BadInputError):
        StepReader(pattern)


@pytest.mark.parametrize("piece", ["1", "━", " ", "12/100 ", "iteration ", "step 1,", "{'step': 1", "[rank0]: ", "1:"])
def test_no_line_takes_long(piece: str) -> None:
    """Whatever a script prints must not keep the agent busy: a thread that reads a log shares its processor with the samples."""
    started_s = time.process_time()
    StepReader().read((piece * 100_000)[:300_000])
    assert time.process_time() - started_s < 1.0
