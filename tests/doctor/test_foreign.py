"""What is said of a proposal: each gap with what it hides and how to mend it."""

from __future__ import annotations

from typing import Any

import pytest

from minder.doctor.finding import is_fine
from minder.doctor.foreign import look_at_proposal
from minder.doctor.guess import Doubt
from minder.doctor.identity import Identity
from minder.doctor.proposal import Proposal

WHOLE = {"gpu_power_draw_watts": 8, "cpu_usage_ratio": 4, "tcp_throughput_bytes_per_second": 4, "steps_total": 4}


def look(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "mappings": ("minder",), "guessed": (), "used": WHOLE, "identity": Identity(("machine",), ("a", "b", "c")), "interval_s": 5.0,
        "offset_s": 0.1, "exporters": {"x": 3},
    }  # fmt: skip
    findings = look_at_proposal("http://p", Proposal(**{**values, **changes}))
    return {"fine": is_fine(findings), **{item.check: item for item in findings}}


def test_a_whole_set_up_is_fine() -> None:
    found = look()
    assert found["fine"] and "absent" not in found and found["machines"].seen == '3 machines by label "machine": a, b, c'


@pytest.mark.parametrize(
    ("changes", "check", "expected"),
    [
        ({"used": {}}, "metrics", "no series"),
        ({"used": {"cpu_usage_ratio": 4}}, "peers", "slow GPU would not be seen"),
        ({"identity": None}, "machines", "nothing names the machine"),
        (
            {"identity": Identity(("machine",), ("a", "b"), families={"a": frozenset({"gpu", "host"}), "b": frozenset({"gpu"})})},
            "families",
            "b lacks host",
        ),
        ({"offset_s": -30.0}, "prometheus clock", "30.0 s behind"),
        ({"interval_s": 60.0}, "interval", "every 60 s"),
        ({"clocks_s": {"a:9100": 0.2, "b:9100": -40.0}}, "clocks", "1 of 2 machines is off: b:9100 -40.0 s"),
    ],
)
def test_what_is_missing_is_told_with_how_to_mend_it(changes: dict[str, Any], check: str, expected: str) -> None:
    found = look(**changes)
    assert not found["fine"] and found[check].status == "missing" and expected in found[check].seen and found[check].mend


def test_an_interval_that_is_only_assumed_is_not_said_to_be_fine() -> None:
    found = look(interval_s=15.0, interval_known=False)["interval"]
    assert found.status == "note" and "15 s is assumed" in found.seen and "interval_s" in found.mend


def test_what_takes_no_part_is_reported_and_breaks_nothing() -> None:
    found = look(identity=Identity(("machine",), ("a", "b", "c"), left_out=("node",), others=("login-1",)))
    assert found["fine"] and "node" in found["left out"].seen and "login-1" in found["machines"].seen


def test_a_doubt_names_the_series_and_the_reason() -> None:
    found = look(doubts=(Doubt("gpu_duty_cycle_ratio", "rig_gpu_busy", "it is read while idle"),))
    assert found["fine"] and "rig_gpu_busy may be gpu_duty_cycle_ratio" in found["unsure"].seen


def test_what_the_server_warns_of_is_passed_on() -> None:
    found = look(warnings=("No StoreAPIs matched for this query: store-3",))
    assert found["fine"] and "store-3" in found["warning"].seen


def test_a_family_that_is_absent_is_told_and_breaks_nothing() -> None:
    found = look(used={"gpu_power_draw_watts": 8, "cpu_usage_ratio": 4, "tcp_throughput_bytes_per_second": 4})
    assert found["fine"] and found["absent"].status == "note" and "job itself" in found["absent"].seen
