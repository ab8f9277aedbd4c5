"""A generation that does not come to its first step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minder.types import JobView, Observation
from minder.verdicts.progress import Progress
from minder.verdicts.start import StartRule

Make = Callable[..., Any]


def job(generation: int, machines: tuple[str, ...], phase: str = "starting", started_s: float = 0.0) -> JobView:
    return JobView("llm", generation, phase, machines, (), (), dict(enumerate(machines)), 0.0, started_s)  # type: ignore[arg-type]


def suspects(rule: StartRule, now_s: float, view: JobView) -> Any:
    return rule.observe(Observation(now_s, job=view)).suspects


def test_the_only_new_machine_of_a_generation_that_does_not_step_is_the_suspect() -> None:
    rule = StartRule(Progress())
    suspects(rule, 0.0, job(1, ("a", "b", "c"), "running"))
    second = job(2, ("a", "s", "c"), started_s=100.0)
    assert suspects(rule, 110.0, second) == ()
    (suspect,) = suspects(rule, 126.0, second)
    assert (suspect.kind, suspect.machines, suspect.tier) == ("machine", ("s",), "evict")
    assert suspects(rule, 140.0, second) == ()


def test_two_new_machines_or_none_are_paged_without_a_name() -> None:
    for machines in (("s0", "s1", "c"), ("a", "b", "c")):
        rule = StartRule(Progress())
        suspects(rule, 0.0, job(1, ("a", "b", "c"), "running"))
        (suspect,) = suspects(rule, 126.0, job(2, machines, started_s=100.0))
        assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "page")


def test_the_first_generation_has_time_to_compile_and_accuses_nobody() -> None:
    rule = StartRule(Progress())
    assert suspects(rule, 100.0, job(1, ("a", "b", "c"))) == ()
    (suspect,) = suspects(rule, 181.0, job(1, ("a", "b", "c")))
    assert (suspect.kind, suspect.tier) == ("job", "page")


def test_a_generation_that_stepped_is_never_accused(scene: Any) -> None:
    progress = Progress()
    rule = StartRule(progress)
    scene.phase = "starting"
    scene.answer(10.0, 3)
    progress.update(scene.see(10.5))
    assert rule.observe(scene.see(500.0)).suspects == ()
