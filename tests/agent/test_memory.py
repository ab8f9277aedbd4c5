"""What an agent adds to an out-of-memory kill."""

from __future__ import annotations

import pytest

from minder.edge.agent.memory import MemoryHistory
from minder.edge.signals.kernel_log import parse_kernel_line
from minder.edge.signals.oom import event_of_kill
from minder.model.evidence import Signal

GIB = 1 << 30
KILL = "Out of memory: Killed process 77 (pt_data_worker) total-vm:9kB, anon-rss:22kB"
OWN_LIMIT = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,oom_memcg=/m1,task_memcg=/m1/w,task=python,pid=77,uid=0"


def history(tree: float, rest: float, whole_machine: str | None = None, samples: int = 100) -> MemoryHistory:
    """A job of 100 GiB on a machine that uses 20 beside it, whose last two samples are these."""
    found = MemoryHistory(whole_machine)
    for t in range(samples):
        now_tree, now_rest = (tree, rest) if t >= samples - 2 else (100.0, 20.0)
        found.note(float(t), now_tree * GIB, (now_tree + now_rest) * GIB, [70, 77])
    return found


def kill(text: str = KILL, pid: int = 77) -> Signal:
    signal = parse_kernel_line(text.replace("77", str(pid)), 99.5, "m1")
    assert signal is not None
    return signal


@pytest.mark.parametrize(
    ("tree", "rest", "event"),
    [(100.0, 80.0, "oom.neighbour"), (170.0, 20.0, "oom.program"), (170.0, 80.0, "oom.program"), (100.0, 20.5, "oom")],
)
def test_whoever_grew_is_to_blame(tree: float, rest: float, event: str) -> None:
    assert event_of_kill(history(tree, rest).explain(kill())) == event


def test_a_process_that_is_no_training_process_says_nothing() -> None:
    assert event_of_kill(history(100.0, 80.0).explain(kill(pid=5))) == "oom"


def test_too_few_samples_say_nothing() -> None:
    assert event_of_kill(history(100.0, 80.0, samples=20).explain(kill())) == "oom"


def test_the_limit_of_the_jobs_own_cgroup_is_the_programs() -> None:
    assert event_of_kill(history(100.0, 80.0).explain(kill(OWN_LIMIT))) == "oom.program"


def test_the_limit_of_a_machine_that_is_a_cgroup_is_the_machines() -> None:
    assert event_of_kill(history(100.0, 80.0, whole_machine="m1").explain(kill(OWN_LIMIT))) == "oom.neighbour"


def test_a_line_alone_never_accuses_a_machine() -> None:
    assert event_of_kill(kill()) == "oom"
    assert event_of_kill(kill(OWN_LIMIT)) == "oom"
