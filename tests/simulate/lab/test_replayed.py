"""A real replay: groups of processes that run side by side, one machine of which computes something else now and then."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.package("torch")]


def replay(*options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "minder.simulate.lab.replayed", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    return dict(json.loads(done.stdout))


def test_a_machine_that_flips_one_bit_in_one_of_a_hundred_steps_is_found_in_two_phases() -> None:
    found = replay("--fault", "flip", "--faulty", "m2", "--steps", "100")
    assert (found["state"], found["machines"], found["suspects"]) == ("found", ["m2"], [])
    assert [phase["kind"] for phase in found["phases"]] == ["horizontal", "vertical"]
    groups = [group for phase in found["phases"] for group in phase["groups"]]
    assert [group["generation"] for group in groups] == [1, 2, 3, 4]
    for phase in found["phases"]:
        assert len({group["port"] for group in phase["groups"]}) == 2
        assert sorted(machine for group in phase["groups"] for machine in group["machines"]) == ["m0", "m1", "m2", "m3"]
    for group in groups:
        bad = "m2" in group["machines"]
        assert group["state"] == ("failed" if bad else "passed")
        assert ("two identical runs differ from step" if bad else "2 runs without a failure") in group["reason"]


@pytest.mark.parametrize(("fault", "reason"), [("nan", "nan: rank"), ("crash", "crash: rank")])
def test_a_machine_that_breaks_the_job_is_found_too(fault: str, reason: str) -> None:
    found = replay("--fault", fault, "--faulty", "m1", "--steps", "20")
    assert found["machines"] == ["m1"]
    assert all(group["reason"].startswith(reason) for phase in found["phases"] for group in phase["groups"] if group["state"] == "failed")


def test_healthy_machines_are_not_accused() -> None:
    found = replay("--faulty", "", "--steps", "20")
    assert (found["state"], found["machines"], len(found["phases"])) == ("not_judged", [], 1)
    assert "did not come back in 2 runs of each group" in found["reason"]


def test_a_nan_that_follows_a_rank_is_no_machines_own() -> None:
    found = replay("--fault", "nan", "--faulty-rank", "1", "--steps", "20")
    groups = [group for phase in found["phases"] for group in phase["groups"]]
    assert [group["state"] for group in groups] == ["failed"] * 2 and all(group["reason"].startswith("nan: rank") for group in groups)
    assert (found["state"], found["machines"]) == ("not_judged", []) and "every group" in found["reason"]
