"""A detector that works elsewhere says what one here says, bit for bit, whatever becomes of its host; or it says that it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from minder.diagnose.detectors.contract import Detector
from minder.diagnose.load_detector import detector_maker, open_model
from minder.diagnose.scoring import host as host_module
from minder.diagnose.scoring.remote import Patience, RemoteDetector
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.model.errors import MinderError, ScoringLostError
from minder.model.evidence import Scores, Suspect
from minder.model.observation import Observation
from minder.model.telemetry import Window
from minder.record.registry.folder import Model

BRIEF = Patience(0.01)
STAGES = dict.fromkeys("abcdef", 0)


def default_model() -> Model:
    return open_model("default")


def here() -> Detector:
    return detector_maker(default_model())(STAGES)


def elsewhere(hosts: Any, patience: Patience = BRIEF) -> RemoteDetector:
    return RemoteDetector(hosts, "job", default_model(), STAGES, patience)


def look(rule: TelemetryRule, row: Window) -> tuple[Suspect, ...]:
    return rule.observe(Observation(float(row.times_T[0]), row)).suspects


def same(one: Scores | None, other: Scores | None) -> bool:
    assert one is not None and other is not None
    assert one.score_M.tobytes() == other.score_M.tobytes()
    return (one.time_s, one.machines, one.threshold, one.evidence, one.since_s, one.cause) == (
        other.time_s, other.machines, other.threshold, other.evidence, other.since_s, other.cause
    )  # fmt: skip


def test_scores_and_suspects_are_the_same_bit_for_bit(hosts: Any, sick_rows: Sequence[Window]) -> None:
    one, other = TelemetryRule(here()), TelemetryRule(elsewhere(hosts))
    suspected = 0
    for row in sick_rows:
        expected = look(one, row)
        assert look(other, row) == expected
        assert same(other.scores, one.scores)
        suspected += bool(expected)
    assert suspected > 20


@pytest.mark.lab
def test_a_host_that_is_killed_again_and_again_changes_nothing(hosts: Any, sick_rows: Sequence[Window]) -> None:
    one, detector = TelemetryRule(here()), elsewhere(hosts)
    other, rng = TelemetryRule(detector), np.random.default_rng(1)
    for row in sick_rows:
        if rng.random() < 0.2:
            hosts.kill()
        assert look(other, row) == look(one, row)
        assert same(other.scores, one.scores)
    assert detector.restores > 40


def test_while_nobody_answers_the_rule_is_blind_and_afterwards_nothing_is_missing(hosts: Any, sick_rows: Sequence[Window]) -> None:
    one, detector = TelemetryRule(here()), elsewhere(hosts)
    other = TelemetryRule(detector)
    for t, row in enumerate(sick_rows):
        hosts.gone = "the cluster is lost" if 150 <= t < 260 else ""
        expected = look(one, row)
        result = other.observe(Observation(float(row.times_T[0]), row))
        assert result.no_data == bool(hosts.gone)
        assert bool(detector.trouble) == bool(hosts.gone)
        if hosts.gone:
            assert result.suspects == () and other.scores is None
        else:
            assert result.suspects == expected and same(other.scores, one.scores)


@pytest.mark.lab
def test_a_late_answer_is_taken_when_it_comes(hosts: Any, sick_rows: Sequence[Window]) -> None:
    one, detector = TelemetryRule(here()), elsewhere(hosts)
    other = TelemetryRule(detector)
    for t, row in enumerate(sick_rows[:240]):
        if t == 210:
            hosts.is_slow = True
        if t == 220:
            hosts.answer()
        expected, found = look(one, row), look(other, row)
        assert found == (() if 210 <= t < 220 else expected)
    assert same(other.scores, one.scores)
    assert detector.restores == 0


def test_an_answer_to_a_row_that_was_given_up_is_no_part_of_the_past(hosts: Any, sick_rows: Sequence[Window]) -> None:
    expected, detector = here(), elsewhere(hosts)
    for t, row in enumerate(sick_rows[:40]):
        if t == 20:
            hosts.is_slow = True
            with pytest.raises(ScoringLostError, match="no answer"):
                detector.score(row)
            hosts.answer()
            continue
        assert same(detector.score(row)[0], expected.score(row)[0])
        detector.learn(row, frozenset())
        expected.learn(row, frozenset())


def test_an_open_episode_does_not_end_while_nobody_can_look(hosts: Any, sick_rows: Sequence[Window]) -> None:
    judge = Judge([TelemetryRule(elsewhere(hosts))], recovered_s=30.0)
    told = []
    for row in sick_rows[:300]:
        told += judge.judge(Observation(float(row.times_T[0]), row))[0]
    assert [item.kind for item in told] == ["machine"]
    hosts.gone = "the cluster is lost"
    for row in sick_rows[300:]:
        told += judge.judge(Observation(float(row.times_T[0]), row))[0]
    assert [item.kind for item in told] == ["machine"]


def test_its_state_goes_on_elsewhere_and_here(hosts: Any, sick_rows: Sequence[Window]) -> None:
    first, expected = elsewhere(hosts), here()
    for row in sick_rows[:100]:
        first.score(row)
        expected.score(row)
        first.learn(row, frozenset())
        expected.learn(row, frozenset())
    assert first.state() == expected.state()
    second = elsewhere(hosts)
    second.load(first.state())
    for row in sick_rows[100:150]:
        told = expected.score(row)[0]
        assert same(second.score(row)[0], told)
        assert same(first.score(row)[0], told) if row is sick_rows[100] else True
        second.learn(row, frozenset())
        expected.learn(row, frozenset())


def test_a_host_with_other_versions_is_refused(hosts: Any, sick_rows: Sequence[Window], monkeypatch: pytest.MonkeyPatch) -> None:
    detector = elsewhere(hosts)
    older = {**host_module.versions(), "numpy": "1.0"}
    monkeypatch.setattr(host_module, "versions", lambda: older)
    with pytest.raises(ScoringLostError, match=r"has numpy 1\.0 instead of"):
        detector.score(sick_rows[0])


def test_a_replay_cannot_do_without_an_answer(hosts: Any, sick_rows: Sequence[Window]) -> None:
    hosts.gone = "no Ray at 10.0.0.7:6379: Connection refused"
    rule = TelemetryRule(elsewhere(hosts, Patience(0.01, MinderError)))
    with pytest.raises(MinderError, match=r"job is not scored: no Ray at 10\.0\.0\.7:6379"):
        look(rule, sick_rows[0])


@pytest.mark.lab
def test_what_is_kept_of_the_past_is_bounded(hosts: Any, sick_rows: Sequence[Window]) -> None:
    detector = elsewhere(hosts)
    for row in sick_rows:
        detector.score(row)
        detector.learn(row, frozenset())
        assert len(detector._past) <= 61
