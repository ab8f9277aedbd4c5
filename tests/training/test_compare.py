"""Who may become the champion: better on the same recordings, without more wrong names; hand-made outcomes."""

from __future__ import annotations

from minder.ingest.sources.events import Truth
from minder.model.evidence import Verdict
from minder.offline.evaluation.cases import Case, Facts, case_of
from minder.offline.training.promote import by_validation, compare, comparison_record

ONSET_S = 1_772_431_800.0


def cases(found: int, wrong: int, missed: int, quiet: int = 10, delay_s: float = 30.0) -> list[Case]:
    """All sets have the same names for the same numbers of faults."""
    made = []
    for index, who in enumerate(["m1"] * found + ["m2"] * wrong + [None] * missed + ["calm"] * quiet):
        name = f"r{index:03d}"
        truth = Truth(name) if who == "calm" else Truth(name, "hang", "m1", ONSET_S, ("m1",))
        verdicts = [] if who in (None, "calm") else [Verdict(ONSET_S + delay_s, "machine", "evict", (str(who),), "stall", 0.9, ONSET_S)]
        made.append(case_of(truth, Facts(8, ONSET_S - 600, ONSET_S + 600, 1.0, 19), verdicts, name))
    return made


def test_a_challenger_that_finds_more_is_better() -> None:
    found = compare(cases(20, 0, 20), cases(38, 0, 2))
    assert found.better and found.sure > 0.99
    assert "F1" in found.why[0]


def test_a_draw_is_not_better_and_sooner_is() -> None:
    assert not compare(cases(30, 0, 10), cases(30, 0, 10)).better
    sooner = compare(cases(30, 0, 10, delay_s=60.0), cases(30, 0, 10, delay_s=20.0))
    assert sooner.better and any("40.0 s sooner" in line for line in sooner.why)
    assert not compare(cases(30, 0, 10, delay_s=20.0), cases(30, 0, 10, delay_s=60.0)).better


def test_more_faults_found_do_not_pay_for_wrong_names() -> None:
    found = compare(cases(20, 0, 20), cases(32, 8, 0))
    assert not found.better
    assert any("precision falls from 1.000 to 0.800" in line for line in found.why)


def test_a_false_accusation_in_a_healthy_job_is_one_too_many() -> None:
    old, new = cases(20, 0, 20), cases(38, 0, 2)
    calm = new[-1]
    early = Verdict(ONSET_S, "machine", "page", ("m3",), "unknown", 0.8, ONSET_S)
    new[-1] = case_of(Truth(calm.judged.recording), calm.facts, [early], calm.path)
    found = compare(old, new)
    assert not found.better and any("while nothing was wrong" in line for line in found.why)


def test_few_recordings_decide_nothing() -> None:
    found = compare(cases(0, 0, 4, quiet=0), cases(4, 0, 0, quiet=0))
    assert not found.better and "at least 10" in found.why[0]


def test_one_who_names_nobody_loses_to_one_who_is_right() -> None:
    found = compare(cases(0, 0, 20), cases(20, 0, 0))
    assert found.better
    record = comparison_record(found, 2, "default")
    assert record["promoted"] is True and record["champion"]["precision"] is None
    assert "the challenger names no machine" in compare(cases(20, 0, 0), cases(0, 0, 20)).why


def document(earned: bool) -> dict[str, object]:
    line = {"precision": 0.9, "recall": None, "f1": 0.8, "delay_s": 170.0, "found": 8, "wrong": 1, "missed": 2, "quiet": 9}
    sections = [{"title": "families that neither has seen", "lines": [{**line, "way": way} for way in ("default", "learned", "pool")]}]
    return {"sections": sections, "earned": earned, "why": ["NOT met: unseen families"]}


def test_a_learned_model_is_taken_only_where_it_earned_its_place() -> None:
    assert by_validation(document(True)).better
    refused = by_validation(document(False))
    assert not refused.better and refused.why == ("NOT met: unseen families",)
    assert (refused.challenger.found, refused.challenger.precision) == (8, 0.9)
