"""What a failure is known by: of a hang, the ranks of the machine that is meant."""

from __future__ import annotations

import pytest

from minder.act.controller.failures import identify
from minder.act.controller.state import JobState
from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.evidence import Evidence, Verdict


def hang(*machines: str, tier: str = "evict", cause: str = "stall") -> Verdict:
    """Of the whole job; evidence about these machines, and some about none."""
    evidence = [Evidence("progress", None, "no progress"), *(Evidence("stacks", name, "outside any collective") for name in machines)]
    return Verdict(100.0, "job", tier, (), cause, 0.9, 90.0, tuple(evidence), (), ("hang",))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verdict", "named"),
    [
        (hang("m1"), [("m1", (2, 3))]),
        (hang("m1", "m1"), [("m1", (2, 3))]),
        (hang(), []),
        (hang("m0", "m1"), []),  # two stand apart: nobody is meant
        (hang("m1", tier="page"), []),  # a person's to look at: nothing will be done
        (hang("m1", cause="explicit"), []),
    ],
)
def test_a_hang_of_the_job_is_known_by_the_only_machine_that_stands_apart(
    verdict: Verdict, named: list[tuple[str, tuple[int, ...]]]
) -> None:
    state = JobState("llm", generation=4, rank_machine={0: "m0", 1: "m0", 2: "m1", 3: "m1"}, phase="running", first_step_seen=True)
    found = identify(verdict, state, JobTracker()).failures
    assert [(item.machine, item.ranks) for item in found] == named
    assert all(
        (item.sort, item.kind, item.generation, item.stepped, item.fingerprint) == ("hang", "unknown", 4, True, "") for item in found
    )
