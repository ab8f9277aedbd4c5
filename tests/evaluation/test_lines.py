"""The line of a verdict, and which verdicts get one."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from minder.model.evidence import Evidence, Verdict
from minder.offline.evaluation.lines import Episodes, format_verdict

EVIDENCE = Evidence("telemetry", "node-0002", "", "gpu_power_draw_watts", None, 131.2, 548.0, 1772432004.0)
VERDICT = Verdict(1772432031.0, "machine", "evict", ("node-0002",), "stall", 0.98, 1772432004.0, (EVIDENCE,))


def test_a_line_is_the_documented_one() -> None:
    found = json.loads(format_verdict("r001", VERDICT, "jsonl"))
    assert found.pop("against") == []
    assert found == {
        "recording": "r001",
        "time": "2026-03-02T06:13:51.000Z",
        "kind": "machine",
        "tier": "evict",
        "machines": ["node-0002"],
        "confidence": 0.98,
        "cause": "stall",
        "evidence": [
            {
                "source": "telemetry",
                "metric": "gpu_power_draw_watts",
                "machine": "node-0002",
                "device": None,
                "observed": 131.2,
                "expected": 548.0,
                "since": "2026-03-02T06:13:24.000Z",
            }
        ],
    }


def test_numbers_that_json_does_not_have_are_null() -> None:
    odd = replace(VERDICT, evidence=(replace(EVIDENCE, observed=math.nan, expected=math.inf),))
    (evidence,) = json.loads(format_verdict("r", odd, "jsonl"))["evidence"]
    assert (evidence["observed"], evidence["expected"]) == (None, None)


def test_a_row_says_who_why_and_how_surely() -> None:
    row = format_verdict("r001", VERDICT, "table")
    assert all(
        word in row for word in ("r001", "machine", "evict", "node-0002", "0.98", "stall", "gpu_power_draw_watts 131.2 (expected 548)")
    )
    assert "\n" not in row


def test_an_episode_has_one_line_until_it_recovers() -> None:
    episodes = Episodes()
    page = replace(VERDICT, tier="page")
    recovered = replace(VERDICT, kind="recovered")
    assert [episodes.is_news(item) for item in (page, VERDICT, replace(VERDICT), recovered, VERDICT)] == [True, False, False, True, True]


def test_a_restart_closes_what_is_open() -> None:
    episodes = Episodes()
    episodes.is_news(VERDICT)
    (line,) = episodes.close(2000.0)
    assert (line.kind, line.machines, line.time_s, line.evidence) == ("recovered", ("node-0002",), 2000.0, ())
    assert episodes.close(2001.0) == []
    assert episodes.is_news(VERDICT)
