"""Which steps in memory and on disks a job can go on from, as its launchers say."""

from __future__ import annotations

from typing import Any

import pytest

from minder.act.controller.memory_steps import saved_steps


def records(where: str, steps: dict[int, tuple[int, ...]], generation: int = 1, skipped: str = "", world: int = 2) -> list[dict[str, Any]]:
    """steps: of which ranks each step has a record."""
    about = {"generation": generation, "world_size": world, "where": where, "skipped": skipped}
    return [{**about, "step": step, "rank": rank} for step, ranks in steps.items() for rank in ranks]


@pytest.mark.parametrize(
    ("m0", "m1", "lives", "dead"),
    [
        # own records and the peer's backups; the newest is under way
        (records("memory", {8: (0, 1), 9: (0,)}), records("memory", {8: (0, 1), 9: (1,)}), (9,), (9, 8)),
        # asked at different moments: nothing in common, and the newest that any has speaks for all
        (records("memory", {8: (0,)}), records("memory", {11: (1,)}), (11,), (11,)),
        # a rank without anything in memory: only what is complete on disks
        (records("memory", {9: (0,)}) + records("disk", {5: (0,)}), records("disk", {5: (1,), 6: (1,)}), (5,), (5,)),
        (
            records("memory", {9: (0,)}) + records("disk", {5: (0,)}), records("memory", {9: (1,)}) + records("disk", {5: (1,)}),
            (9, 5), (9, 5),
        ),
        # of a job of another size
        (records("memory", {8: (0, 1, 2)}, world=3), [], (), ()),
        ([], [], (), ()),
    ],
)  # fmt: skip
def test_what_every_rank_can_have_counts(m0: list[Any], m1: list[Any], lives: tuple[int, ...], dead: tuple[int, ...]) -> None:
    states = [{"saved": m0}, {"saved": m1}]
    for living, wanted in ((True, lives), (False, dead)):
        assert saved_steps(states, 2, lives=living) == tuple((step, "") for step in wanted)


def test_a_launcher_that_does_not_say_what_its_cache_holds_leaves_it_unknown() -> None:
    assert saved_steps([{"saved": records("memory", {8: (0, 1)})}, {"generation": 1}], 2, lives=False) is None


def test_the_newer_generation_is_the_newer_step_and_says_what_it_left_out() -> None:
    later = records("memory", {8: (0, 1)}, generation=2, skipped="8")
    states = [{"saved": records("memory", {9: (0,)}) + later}, {"saved": records("memory", {9: (1,)})}]
    assert saved_steps(states, 2, lives=True) == ((8, "8"),)
    assert saved_steps(states, 2, lives=False) == ((8, "8"), (9, ""))
