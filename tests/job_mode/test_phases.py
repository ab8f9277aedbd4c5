"""Declared phases may lie in one another, and dangle in no other."""

from __future__ import annotations

from typing import Any

import pytest

from minder.diagnose.job_mode.phases import DeclaredPhases


def phases_after(scene: Any, *reported: tuple[str, str]) -> DeclaredPhases:
    """Of a job of which only agents report: one event a second, the last observation a second later."""
    scene.views = {}
    phases = DeclaredPhases()
    for at_s, (phase, state) in enumerate(reported, 1):
        phases.update(scene.see(at_s, [scene.signal("phase", "m1", at_s, phase=phase, state=state, generation=None)]))
    return phases


@pytest.mark.parametrize(("reported", "phase"), [
    ([("evaluation", "begin")], "evaluation"),
    ([("evaluation", "begin"), ("checkpoint", "begin")], "checkpoint"),
    ([("evaluation", "begin"), ("checkpoint", "begin"), ("checkpoint", "end")], "evaluation"),
    ([("evaluation", "begin"), ("checkpoint", "begin"), ("checkpoint", "end"), ("evaluation", "end")], ""),
    ([("evaluation", "begin"), ("checkpoint", "begin"), ("evaluation", "end")], ""),  # what lay in it has ended with it
    ([("evaluation", "begin"), ("evaluation", "begin"), ("evaluation", "end")], ""),
    ([("evaluation", "begin"), ("checkpoint", "end")], "evaluation"),  # the end of another one
    ([("lunch", "begin")], ""),
])  # fmt: skip
def test_the_innermost_open_phase(reported: list[tuple[str, str]], phase: str, scene: Any) -> None:
    phases = phases_after(scene, *reported)
    assert (phases.phase, phases.has_ended) == (phase, phase == "" and len(reported) > 1)


def test_the_end_of_an_inner_checkpoint_is_a_save(scene: Any, start_s: float) -> None:
    phases = phases_after(scene, ("evaluation", "begin"), ("checkpoint", "begin"), ("checkpoint", "end"))
    assert phases.saved_s == start_s + 3.0
