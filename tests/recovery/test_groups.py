"""Groups that run side by side: nothing of one reaches another."""

from __future__ import annotations

import pytest

from minder.act.recovery.generation_plan import GenerationPlan
from minder.act.recovery.groups import plan_groups
from minder.model.errors import RecoveryError

GROUPS = {"h0": {0: "a", 1: "a", 2: "b", 3: "b"}, "h1": {0: "c", 1: "c", 2: "d", 3: "d"}}


def plan(groups: dict[str, dict[int, str]], after: int = 7) -> dict[str, GenerationPlan]:
    return plan_groups(
        "llm", groups, after=after, open_store=lambda generation: ("10.0.0.254", 29500 + generation), operation_id="replay-1"
    )


def test_each_group_is_a_job_of_its_own_with_its_own_generation_and_store() -> None:
    plans = plan(GROUPS)
    assert [(one.generation, one.master_port) for one in plans.values()] == [(8, 29508), (9, 29509)]
    body = plans["h1"].request_for("d", 1.0)
    assert (body["generation"], body["world_size"], body["operation_id"]) == (9, 4, "replay-1/h1/g9")
    assert [item["env"]["RANK"] for item in body["assignments"]] == ["2", "3"]
    assert {item["env"]["MASTER_PORT"] for item in body["assignments"]} == {"29509"}


def test_the_same_call_gives_the_same_plans_and_the_next_phase_begins_after_them() -> None:
    assert plan(GROUPS) == plan(GROUPS)
    last = max(one.generation for one in plan(GROUPS).values())
    again = plan({"v0": {0: "a", 1: "c"}, "v1": {0: "b", 1: "d"}}, after=last)
    assert [one.generation for one in again.values()] == [10, 11]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"h0": {0: "a"}, "h1": {0: "a"}}, "a is in two groups at once"),
        ({"h0": {0: "a", 2: "b"}}, r"group h0 has the ranks \[0, 2\]: give 0 to 1"),
        ({"h0": {}}, "group h0 has the ranks"),
    ],
)
def test_groups_that_share_a_machine_or_lack_ranks_are_refused(groups: dict[str, dict[int, str]], message: str) -> None:
    with pytest.raises(RecoveryError, match=message):
        plan(groups)
