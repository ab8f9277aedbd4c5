"""Who failed first, and who only echoes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minder.diagnose.verdicts.crash import CrashRule
from minder.model.evidence import Signal, Suspect

Make = Callable[..., Any]


def conclude(scene: Any, signals: Sequence[Signal], *, until_s: float = 14.0, clock_error_s: float = 0.01) -> list[Suspect]:
    """All suspects when the signals come in one tick at 10.2 s, and four ticks a second follow."""
    rule, found, at_s = CrashRule(), [], 10.2
    while at_s < until_s:
        result = rule.observe(scene.see(at_s, signals if at_s == 10.2 else (), clock_error_s=clock_error_s))
        found += result.suspects
        at_s += 0.25
    return found


def first_of(suspect: Suspect) -> tuple[str, ...]:
    """The machines of what failed first: a job's suspicion names none for eviction, and carries their identity."""
    assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "evict")
    return tuple(dict.fromkeys(failure.machine for failure in suspect.failures))


def test_the_first_of_a_cascade_is_remembered_and_the_others_are_its_echoes(scene: Any) -> None:
    signals = [scene.killed("m2", 10.0), scene.killed("m0", 10.1), scene.left("m1", 10.15, 1), scene.killed("m3", 10.18)]
    (suspect,) = conclude(scene, signals)
    assert first_of(suspect) == ("m2",) and suspect.failures[0].kind == "unknown"
    assert suspect.since_s == signals[0].time_s
    assert "failed first" in suspect.evidence[0].message
    assert [item.machine for item in suspect.evidence[1:]] == ["m0", "m1", "m3"]
    assert all("echo" in item.message for item in suspect.evidence[1:])


@pytest.mark.parametrize(
    "victim",
    [
        lambda scene: scene.reset("m0", 9.5),
        lambda scene: scene.killed("m0", 9.5, number=15),
        lambda scene: scene.raised("m0", 9.5, "Watchdog caught collective operation timeout", type="RuntimeError"),
        lambda scene: scene.left("m0", 9.5, 1, expected=True),
        lambda scene: scene.left("m0", 9.5, 0),
    ],
    ids=["connection reset", "SIGTERM", "watchdog", "ended by its launcher", "finished"],
)
def test_a_victim_never_accuses_its_reporter_even_if_it_speaks_first(scene: Any, victim: Make) -> None:
    (suspect,) = conclude(scene, [victim(scene), scene.killed("m3", 10.0)])
    assert first_of(suspect) == ("m3",)


def test_the_exit_that_follows_a_victims_exception_does_not_make_it_a_culprit(scene: Any) -> None:
    signals = [scene.reset("m0", 10.0), scene.left("m0", 10.02, 1), scene.reset("m1", 10.01), scene.left("m1", 10.03, 1)]
    (suspect,) = conclude(scene, signals)
    assert (suspect.kind, suspect.machines) == ("job", ())


def test_only_victims_and_everybody_answers_restarts_the_job_and_names_nobody(scene: Any) -> None:
    (suspect,) = conclude(scene, [scene.reset("m0", 10.0), scene.reset("m1", 10.0)])
    assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "evict")


def test_only_victims_while_one_machine_is_silent_leaves_it_to_the_absence_rule(scene: Any) -> None:
    scene.silence("m2")
    assert conclude(scene, [scene.reset("m0", 10.0), scene.reset("m1", 10.0)]) == []


def test_a_late_culprit_is_still_found_when_victims_spoke_first(scene: Any) -> None:
    rule = CrashRule()
    assert rule.observe(scene.see(10.2, [scene.reset("m0", 10.1)])).suspects == ()
    assert rule.observe(scene.see(11.0)).suspects == ()
    rule.observe(scene.see(11.5, [scene.killed("m1", 10.0)]))
    found = rule.observe(scene.see(12.1)).suspects
    assert [first_of(suspect) for suspect in found] == [("m1",)]


def test_a_tie_inside_the_clocks_error_asks_for_more_and_then_remembers_both(scene: Any) -> None:
    rule = CrashRule()
    signals = [scene.killed("m1", 10.0), scene.killed("m2", 10.015)]
    rule.observe(scene.see(10.2, signals))
    waiting = rule.observe(scene.see(10.8))
    assert waiting.suspects == () and "stacks" in waiting.requests
    (suspect,) = rule.observe(scene.see(12.8)).suspects
    assert set(first_of(suspect)) == {"m1", "m2"}


def test_two_failures_of_one_machine_at_one_moment_are_no_tie(scene: Any) -> None:
    second = scene.killed("m1", 10.005)
    other = Signal(second.time_s, "exit", "m1", "", 7, None, 900, 1, {"signal": 9})
    (suspect,) = conclude(scene, [scene.killed("m1", 10.0), other])
    assert first_of(suspect) == ("m1",)


def test_the_same_exception_everywhere_is_the_jobs_own(scene: Any) -> None:
    (suspect,) = conclude(scene, [scene.raised(machine, 10.0 + 0.1 * index) for index, machine in enumerate(scene.machines)])
    assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "evict")
    assert "4 ranks raised the same" in suspect.evidence[0].message


def test_a_norm_over_all_ranks_that_is_not_finite_names_no_rank_and_is_no_error_of_the_program(scene: Any) -> None:
    message = "The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be clipped."
    signals = [scene.raised(f"m{i}", 10.0 + 0.01 * i, message, type="RuntimeError", step=41) for i in range(4)]
    (suspect,) = conclude(scene, signals)
    assert first_of(suspect) == ("m0",) and suspect.kind == "job"
    (failure,) = suspect.failures
    assert (failure.sort, failure.kind, len(failure.ranks), failure.step) == ("batch", "unknown", 4, 41)
    assert any("one machine that computes wrongly" in item.message for item in suspect.evidence)
    (pair,) = conclude(scene, signals[1:3])
    assert {item.sort for item in pair.failures} == {"crash"} and first_of(pair) == ("m1", "m2"), "two of four are not all"
    (alone,) = conclude(scene, signals[2:3])
    assert (alone.failures[0].sort, alone.failures[0].machine) == ("crash", "m2"), "of one rank alone it is that rank's"


def test_the_same_exit_code_everywhere_is_the_jobs_own(scene: Any) -> None:
    """A wrong argument ends every rank with code 2; whose clock was first tells nothing."""
    (suspect,) = conclude(scene, [scene.left(machine, 10.0 + 0.2 * index, 2) for index, machine in enumerate(scene.machines)])
    assert (suspect.kind, suspect.machines) == ("job", ())


def test_one_ranks_own_exception_restarts_the_job_in_place(scene: Any) -> None:
    (suspect,) = conclude(scene, [scene.raised("m1", 10.0), scene.left("m1", 10.1, 1), scene.reset("m0", 10.2)])
    assert (suspect.kind, suspect.machines) == ("job", ())
    assert suspect.evidence[0].machine == "m1"


@pytest.mark.parametrize(
    "message", ["CUDA error: uncorrectable ECC error encountered", "Unable to determine the device handle: GPU is lost"]
)
def test_an_error_of_the_machines_class_accuses_the_machine(scene: Any, message: str) -> None:
    (suspect,) = conclude(scene, [scene.raised("m1", 10.0, message, type="RuntimeError"), scene.left("m1", 10.1, 1)])
    assert (suspect.kind, suspect.machines, suspect.tier) == ("machine", ("m1",), "evict")


def test_an_error_of_the_machines_class_outranks_an_unknown_one_that_came_first(scene: Any) -> None:
    ecc = scene.raised("m2", 10.3, "HIP error: uncorrectable ECC error encountered", type="AcceleratorError")
    (suspect,) = conclude(scene, [scene.killed("m1", 10.0), ecc])
    assert (suspect.kind, suspect.machines) == ("machine", ("m2",))


@pytest.mark.parametrize(
    ("type_name", "message", "kind"),
    [
        ("RuntimeError", "CUDA error: out of memory", "program"),
        ("RuntimeError", "CUDA error: device-side assert triggered", "program"),
        ("RuntimeError", "op.preamble.length <= op.nbytes. 64 vs 32. Is there a distributed collective mismatch in your code?", "program"),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered", "unknown"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/data/3.bin'", "unknown"),
    ],
)
def test_an_exception_alone_evicts_no_machine(scene: Any, type_name: str, message: str, kind: str) -> None:
    signals = [
        scene.raised("m1", 10.0, message, type=type_name, fingerprint="x"),
        scene.killed("m1", 10.1, number=6),
        scene.reset("m0", 10.2),
    ]
    (suspect,) = conclude(scene, signals)
    assert first_of(suspect) == ("m1",) and suspect.failures[0].kind == kind


def test_a_failure_carries_its_identity(scene: Any) -> None:
    raised = scene.raised("m1", 10.0, "odd", type="CustomError", fingerprint="CustomError|:|train:main", step=41, code_version="abc")
    (suspect,) = conclude(scene, [raised])
    (failure,) = suspect.failures
    assert (failure.ranks, failure.step, failure.generation, failure.code_version) == ((1,), 41, 1, "abc")
    assert (failure.fingerprint, failure.sort) == ("CustomError|:|train:main", "crash")


@pytest.mark.parametrize(
    ("versions", "beside", "said"),
    [("aaaa", (), False), ("abaa", ("a",), True), ("abcd", ("a", "c", "d"), False), ("a-aa", ("a",), False)],
    ids=["all alike", "one of its own", "each its own", "not known"],
)
def test_a_failure_remembers_the_code_beside_it(scene: Any, versions: str, beside: tuple[str, ...], said: bool) -> None:
    scene.answer(9.0, 40)
    for machine, version in zip(scene.machines, versions, strict=True):
        scene.worker(machine, code_version=version.strip("-") or None)
    own = {"code_version": versions[1]} if versions[1] != "-" else {}
    (suspect,) = conclude(scene, [scene.raised("m1", 10.0, "odd", type="CustomError", **own)])
    assert suspect.failures[0].beside == beside
    assert any(item.message == "runs code b, the others a" for item in suspect.evidence) == said
    assert first_of(suspect) == ("m1",), "another version accuses no machine"


def test_a_bare_exit_and_a_bare_signal_have_no_fingerprint(scene: Any) -> None:
    for signal in (scene.left("m1", 10.0, 3), scene.killed("m1", 10.0)):
        (suspect,) = conclude(scene, [signal])
        assert suspect.failures[0].fingerprint == ""


def test_a_kernel_oom_line_of_the_same_machine_becomes_evidence(scene: Any) -> None:
    kernel = scene.signal("kernel", "m2", 9.9, "Memory cgroup out of memory: Killed process 102", what="oom")
    elsewhere = scene.signal("kernel", "m0", 9.9, "Memory cgroup out of memory: Killed process 77", what="oom")
    (suspect,) = conclude(scene, [elsewhere, kernel, scene.killed("m2", 10.0)])
    messages = [item.message for item in suspect.evidence if item.source == "kernel"]
    assert messages == [kernel.message]


@pytest.mark.parametrize("signal", ["generation", "time"])
def test_what_belongs_to_an_older_generation_is_ignored(make_scene: Make, signal: str) -> None:
    scene = make_scene(generation=2)
    old = scene.killed("m1", 10.0, generation=1) if signal == "generation" else scene.killed("m1", -1.0)
    assert conclude(scene, [old]) == []


def test_a_new_generation_starts_a_new_case(scene: Any) -> None:
    rule = CrashRule()
    rule.observe(scene.see(10.2, [scene.killed("m1", 10.0)]))
    assert rule.observe(scene.see(12.1)).suspects
    scene.generation = 2
    rule.observe(scene.see(20.2, [scene.killed("m3", 20.0)]))
    (suspect,) = rule.observe(scene.see(22.1)).suspects
    assert first_of(suspect) == ("m3",)


def test_one_case_speaks_once(scene: Any) -> None:
    assert len(conclude(scene, [scene.killed("m1", 10.0)], until_s=60.0)) == 1


def test_a_crash_before_the_first_step_counts_and_one_during_recovery_does_not(scene: Any) -> None:
    scene.phase = "starting"
    assert conclude(scene, [scene.killed("m1", 10.0)])
    scene.phase = "recovering"
    assert conclude(scene, [scene.killed("m1", 10.0)]) == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    order=st.permutations(range(6)), gaps=st.lists(st.floats(0.05, 0.3), min_size=5, max_size=5), kinds=st.lists(st.booleans(), min_size=5)
)
def test_neither_the_order_of_arrival_nor_the_echoes_change_who_was_first(
    make_scene: Make, order: list[int], gaps: list[float], kinds: list[bool]
) -> None:
    """Every machine dies, in the order of `order`; the signals come shuffled in one tick."""
    scene = make_scene(count=6)
    at_s, signals = 9.0, [scene.killed(f"m{order[0]}", 9.0)]
    for index, gap, dies in zip(order[1:], gaps, kinds, strict=False):
        at_s += gap
        signals.append(scene.killed(f"m{index}", at_s) if dies else scene.reset(f"m{index}", at_s))
    shuffled = [signals[index] for index in order if index < len(signals)]
    (suspect,) = conclude(scene, shuffled)
    assert first_of(suspect) == (f"m{order[0]}",)
