"""What a program prints, and what becomes of it: a crash, nonsense or silence is never "none", and "none" is never "unknown"."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minder.model.errors import BadInputError
from minder.offline.benchmark.answers import Answer, lines_of, read_answer
from minder.offline.benchmark.judging import Row, judge
from minder.offline.benchmark.right import Right
from minder.offline.benchmark.table import compare, comparison_line, figures, table

ONSET_S = 1_772_431_200.0  # 2026-03-02T06:00:00Z
FAULTY = Right("telemetry-a", "telemetry", ("m2", "m3"), fault="hang", onset_s=ONSET_S, seconds=8640.0)
HEALTHY = Right("telemetry-b", "telemetry", seconds=8640.0)
STACKS = Right("stacks-01", "stacks", ("m2",), fault="hang")
SOFTWARE = Right("stacks-02", "stacks")
DENIED = Right("stacks-03", "stacks", unknown=True)


def line(right: Right, answer: Any, time: str | None = None) -> str:
    return json.dumps({"input": right.input, "answer": answer, "time": time}) + "\n"


def answered(right: Right, *lines: str) -> Row:
    return judge(right, Answer(read_answer("".join(lines), right.input, right.part == "telemetry", False)))


@pytest.mark.parametrize(
    ("right", "lines", "outcome", "is_right", "false"),
    [
        (FAULTY, [(["m2"], "2026-03-02T06:01:00Z")], "found", True, 0),
        (FAULTY, [(["m3", "m2"], "2026-03-02T06:07:00Z")], "found", True, 0),
        (FAULTY, [(["m2"], "2026-03-02T06:07:01Z")], "wrong", False, 0),  # too late
        (FAULTY, [(["m2"], "2026-03-02T05:59:59Z")], "wrong", False, 1),  # before anything was wrong
        (FAULTY, [(["m4"], "2026-03-02T06:01:00Z")], "wrong", False, 1),
        (FAULTY, [(["m2"], "2026-03-02T06:01:00Z"), (["m4"], "2026-03-02T06:02:00Z")], "wrong", False, 1),
        (FAULTY, [("none", None), (["m2"], "2026-03-02T06:01:00Z")], "found", True, 0),
        (FAULTY, [("none", None)], "missed", False, 0),
        (FAULTY, [("unknown", None)], "missed", False, 0),
        (HEALTHY, [("none", None)], "quiet", True, 0),
        (HEALTHY, [("unknown", None)], "quiet", False, 0),
        (HEALTHY, [(["m1"], "2026-03-02T06:01:00Z"), (["m2"], "2026-03-02T06:02:00Z")], "wrong", False, 2),
        (STACKS, [(["m2"], None)], "found", True, 0),
        (STACKS, [(["m2", "m3"], None)], "wrong", False, 1),
        (SOFTWARE, [("none", None)], "quiet", True, 0),
        (SOFTWARE, [(["m2"], None)], "wrong", False, 1),
        (DENIED, [("unknown", None)], "quiet", True, 0),
        (DENIED, [("none", None)], "quiet", False, 0),  # nothing can be seen, which is not "healthy"
    ],
)
def test_an_answer_is_judged(right: Right, lines: list[tuple[Any, str | None]], outcome: str, is_right: bool, false: int) -> None:
    row = answered(right, *(line(right, *one) for one in lines))
    assert (row.judged.outcome, row.right, row.false_accusations) == (outcome, is_right, false)


@pytest.mark.parametrize("right", [FAULTY, HEALTHY, STACKS, SOFTWARE, DENIED])
def test_what_was_not_answered_is_never_right(right: Right) -> None:
    row = judge(right, Answer((), "exit status 1: boom"))
    assert (row.state, row.right) == ("unanswered", False)
    assert figures([row])[right.part]["quiet"] == 0


def test_a_verdict_that_looked_ahead_is_wrong() -> None:
    said = read_answer(line(FAULTY, ["m2"], "2026-03-02T06:01:00Z"), FAULTY.input, True, False)
    row = judge(FAULTY, Answer(said), looked_ahead=True)
    assert (row.judged.outcome, row.right, row.delay_s) == ("wrong", False, 420.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "printed nothing"),
        ("Traceback (most recent call last):", "line 1 is no JSON"),
        ('{"input": "another", "answer": "none"}', 'does not say "input": "telemetry-a"'),
        ('{"input": "telemetry-a", "answer": "healthy"}', 'answer is "healthy"'),
        ('{"input": "telemetry-a", "answer": []}', "give a list of machines"),
        ('{"input": "telemetry-a", "answer": [3]}', "give a list of machines"),
        ('{"input": "telemetry-a", "answer": ["m2"]}', "time is null"),
        ('\n{"input": "telemetry-a", "answer": ["m2"], "time": "soon"}', 'line 2: time is "soon"'),
        ("[" * 100_000, "line 1 is no JSON"),
    ],
)
def test_nonsense_says_what_is_wrong_with_it(text: str, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        read_answer(text, "telemetry-a", True, False)


def test_ranks_are_whole_numbers() -> None:
    assert read_answer('{"input": "dumps-01", "answer": [9, 14]}', "dumps-01", False, True)[0].names == (9, 14)
    with pytest.raises(BadInputError, match="ranks, as whole numbers"):
        read_answer('{"input": "dumps-01", "answer": [true]}', "dumps-01", False, True)


def test_lines_are_read_back_as_they_were_said() -> None:
    said = read_answer(line(FAULTY, ["m2"], "2026-03-02T06:01:00.500Z") + line(FAULTY, "unknown"), FAULTY.input, True, False)
    text = lines_of(FAULTY.input, said)
    assert lines_of(FAULTY.input, read_answer(text, FAULTY.input, True, False)) == text


def test_figures_count_a_miss_as_420_seconds_and_rates_by_job_days() -> None:
    found = answered(FAULTY, line(FAULTY, ["m2"], "2026-03-02T06:01:00Z"))
    missed = answered(FAULTY, line(FAULTY, "none"))
    wrong = answered(HEALTHY, line(HEALTHY, ["m1"], "2026-03-02T06:01:00Z"))
    got = figures([found, missed, wrong])["telemetry"]
    assert got["delay_s"]["value"] == pytest.approx((60.0 + 420.0) / 2)
    assert got["false_a_job_day"]["value"] == pytest.approx(1 / 0.3)  # three recordings of a tenth of a day
    assert got["false_a_job_day"]["low"] == pytest.approx(0.0253 / 0.3, rel=0.01)  # exact, of one event
    assert got["precision"]["value"] == got["recall"]["value"] == 0.5
    assert len(table({"telemetry": got})[1]) == len(table({})[0])


def test_an_entry_that_finds_nothing_has_an_f1_of_0_and_one_without_a_fault_has_none() -> None:
    assert figures([answered(FAULTY, line(FAULTY, "none"))])["telemetry"]["f1"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert figures([answered(HEALTHY, line(HEALTHY, "none"))])["telemetry"]["f1"]["value"] != 0.0


def test_entries_are_compared_on_the_inputs_of_both() -> None:
    good, bad = answered(FAULTY, line(FAULTY, ["m2"], "2026-03-02T06:01:00Z")), judge(FAULTY, Answer((), "boom"))
    other = answered(SOFTWARE, line(SOFTWARE, "none"))
    found = compare([bad], [good, other])
    assert found["inputs"] == 1 and found["f1"]["value"] == 1.0 and found["better"] == 1.0
    assert "F1 +1.00" in comparison_line(found)
    assert comparison_line(compare([bad], [other])) == "compared: no input in common"
