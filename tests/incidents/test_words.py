"""What the console says of a verdict and of what follows: who, why, the rank and the incident, each once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minder.model.decision import Decision
from minder.model.evidence import Evidence, Verdict
from minder.record.incidents.words import verdict_words, what_was_decided

VERDICT = Verdict(10.0, "machine", "evict", ("m1",), "explicit", 0.97, 5.0, (Evidence("signals", "m1", "Xid 79 on GPU 3"),))
JOB = Verdict(10.0, "job", "page", (), "stall", 0.5, 5.0)


def test_a_verdict_is_a_sentence_with_its_rank_and_reason() -> None:
    sentence = verdict_words(VERDICT, {0: "m0", 1: "m1"})
    assert sentence == "m1 (rank 1) reports a fault of its own: Xid 79 on GPU 3; evict (high confidence), confidence 0.97"
    assert verdict_words(JOB, {0: "m0"}) == "the job stands still; page (a person should look), confidence 0.50"
    still = Evidence("progress", None, "no progress for 38 s")
    out = [Evidence("stacks", "m0", f"rank {rank}: stopped") for rank in range(1, 6)]
    sentence = verdict_words(replace(JOB, evidence=(still, Evidence("stacks", None, "the same twice"), *out)), {0: "m0"})
    assert sentence.startswith("the job stands still: no progress for 38 s; rank 1: stopped; rank 2: stopped; rank 3: stopped; page")
    assert verdict_words(replace(VERDICT, kind="recovered"), {}) == "m1 has recovered"
    assert "a newer word; soon" in verdict_words(replace(JOB, cause="a newer word", tier="soon"), {})  # type: ignore[arg-type]


@pytest.mark.parametrize(("changes", "sentence"), [
    ({}, "incident llm-1: m1 is evicted"),
    ({"action": "page", "reason": "no_standby"}, "incident llm-1: m1 needs a person to look (no standby is ready)"),
    ({"action": "none", "reason": "dry_run", "detail": ""}, "incident llm-1: m1 stays: nothing is done (dry run)"),
    ({"action": "restart", "machines": ()}, "incident llm-1: the job is started again in place"),
])  # fmt: skip
def test_a_decision_says_what_follows_and_where_to_look(changes: dict[str, object], sentence: str) -> None:
    decision = replace(Decision("e-1", 11.0, "evict", ("m1",), "act", "no standby is ready", VERDICT), **changes)  # type: ignore[arg-type]
    assert what_was_decided(decision, ["llm-1"]) == sentence
