"""One round of a job that moves: who is waited for is flagged, who is merely early is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import places as at
import pytest
from dumps import Job

from minder.diagnose.stacks import analyse, judge_round, read_captures
from minder.diagnose.stacks.finding import Finding

Place = list[tuple[str, str, int]]
SLOW_DATA: Place = [
    ("wait_for_slow_data", "/opt/job/train.py", 154),
    ("main", "/opt/job/train.py", 204),
    ("<module>", "/opt/job/train.py", 250),
]
OWN_CODE: Place = [("count_tokens", "/opt/job/train.py", 144), ("main", "/opt/job/train.py", 204), ("<module>", "/opt/job/train.py", 250)]


def look(folder: Path, most: Place, one: Place, judge: Callable[..., Finding] = judge_round, state: str = "S") -> tuple[str, ...]:
    job = Job(folder, 8).stand(most).stand(one, [3])
    job.state(state, [3])
    (capture,) = read_captures(folder)
    return judge(capture).evict


@pytest.mark.parametrize("place", [OWN_CODE, at.COMPUTE, at.READ], ids=["own code", "compute", "read"])
def test_who_is_at_work_while_all_others_wait_is_flagged(tmp_path: Path, place: Place) -> None:
    assert look(tmp_path, at.GRAD_SYNC, place) == ("node-0003",)


@pytest.mark.parametrize("place", [at.DDP_BACKWARD, at.SYNC], ids=["backward", "device"])
def test_what_may_be_a_wait_is_flagged_where_all_others_wait_for_certain(tmp_path: Path, place: Place) -> None:
    assert look(tmp_path, at.GRAD_SYNC, place) == ("node-0003",)


@pytest.mark.parametrize("place", [at.DDP_BACKWARD, at.SYNC], ids=["backward", "device"])
def test_who_is_through_with_what_holds_the_others_up_is_not(tmp_path: Path, place: Place) -> None:
    """Seven wait for slow data, the eighth has its own and waits for them; of a hang nothing tells the two apart."""
    assert look(tmp_path / "hang", SLOW_DATA, place, analyse) == ("node-0003",)
    assert look(tmp_path / "slow", SLOW_DATA, place) == ()


def test_a_process_in_uninterruptible_sleep_is_flagged_wherever_it_stands(tmp_path: Path) -> None:
    assert look(tmp_path, at.GRAD_SYNC, at.READ, state="D") == ("node-0003",)


@pytest.mark.parametrize("place", [at.GRAD_SYNC, SLOW_DATA, at.LOADER_WAIT], ids=["wait", "own code", "data"])
def test_all_alike_flag_nobody(tmp_path: Path, place: Place) -> None:
    assert look(tmp_path, place, place) == ()


def test_a_wait_for_ones_own_data_is_the_programs(tmp_path: Path) -> None:
    assert look(tmp_path, at.GRAD_SYNC, at.LOADER_WAIT) == ()
