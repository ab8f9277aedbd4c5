"""Which exception of a chain or a group says what happened: as frameworks, clean-ups and scripts really wrap them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from minder.edge.worker.cause import said, speaking
from minder.edge.worker.failures import Interrupted, NonFiniteGradient, disk_of, fingerprint, is_victim

ECC = "CUDA error: uncorrectable ECC error encountered"
RESET = "[Errno 104] Connection reset by peer"


class StepFailedError(Exception):
    pass


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise TypeError("no code")


def caught(action: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as found:
        action()
    return found.value


def wrap(inner: BaseException, outer: BaseException) -> BaseException:
    """`raise outer from inner`"""

    def action() -> None:
        try:
            raise inner
        except type(inner) as error:
            raise outer from error

    return caught(action)


def handle(inner: BaseException, outer: BaseException) -> BaseException:
    """`outer` is raised while `inner` is handled."""

    def action() -> None:
        try:
            raise inner
        except type(inner):
            raise outer  # noqa: B904 - that is the case

    return caught(action)


def hide(inner: BaseException, outer: BaseException) -> BaseException:
    def action() -> None:
        try:
            raise inner
        except type(inner):
            raise outer from None

    return caught(action)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (wrap(RuntimeError(ECC), StepFailedError("step 12 failed")), "RuntimeError"),
        (wrap(RuntimeError(ECC), ValueError("bad state")), "RuntimeError"),
        (handle(RuntimeError(ECC), RuntimeError("[../gloo/transport/tcp/pair.cc:553] Connection closed by peer")), "RuntimeError"),
        (wrap(wrap(OSError(28, "No space left on device"), RuntimeError("save failed")), StepFailedError("step 12")), "OSError"),
        (wrap(StepFailedError("odd"), ValueError("a shape")), "ValueError"),
        (handle(ValueError("bad batch"), ConnectionResetError(RESET)), "ValueError"),  # the barrier of a clean-up
        (handle(KeyError("cache"), ConnectionResetError(RESET)), "ConnectionResetError"),  # a mere branch
        (handle(KeyError("cache"), StepFailedError("step 12")), "StepFailedError"),
        (handle(ValueError("bad batch"), StepFailedError("step 12")), "ValueError"),
        (handle(ValueError("bad batch"), TypeError("in the clean-up")), "TypeError"),
        (hide(ValueError("bad batch"), StepFailedError("step 12")), "StepFailedError"),
        (handle(ValueError("bad batch"), SystemExit(1)), "ValueError"),  # except ...: print_exc(); sys.exit(1)
        (handle(ValueError("an older one"), SystemExit(0)), "SystemExit"),
        (handle(OSError("a retry"), Interrupted()), "Interrupted"),
        (handle(OSError("a retry"), KeyboardInterrupt()), "KeyboardInterrupt"),
        (SystemExit(3), "SystemExit"),
        (ExceptionGroup("unhandled errors in a TaskGroup", [ConnectionResetError(RESET), ValueError("bad batch")]), "ValueError"),
        (ExceptionGroup("tasks", [ValueError("x"), ExceptionGroup("inner", [RuntimeError(ECC)])]), "RuntimeError"),
        (wrap(ExceptionGroup("tasks", [ConnectionResetError(RESET)]), StepFailedError("step")), "ConnectionResetError"),
        (wrap(NonFiniteGradient("step 3"), StepFailedError("step")), "NonFiniteGradient"),
        (ValueError("alone"), "ValueError"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_who_speaks(error: BaseException, expected: str) -> None:
    assert type(speaking(error)).__name__ == expected


def test_two_bugs_in_one_wrapper_are_two_and_one_bug_in_two_is_one() -> None:
    """Else a fault of a machine would pass for the program's, seen on another machine."""
    first, second = wrap(KeyError("input_ids"), StepFailedError("a")), wrap(RuntimeError(ECC), StepFailedError("a"))
    assert fingerprint(first) != fingerprint(second)
    assert fingerprint(wrap(KeyError("x"), ValueError("b"))) == fingerprint(first)


def test_a_chain_that_goes_in_a_circle_ends() -> None:
    first, second = ValueError("a"), StepFailedError("b")
    first.__cause__, second.__cause__ = second, first
    assert speaking(second) in (first, second)


LOADER = (
    "Caught OSError in DataLoader worker process 2.\nOriginal Traceback (most recent call last):\n"
    '  File "/x/torch/utils/data/_utils/worker.py", line 349, in _worker_loop\n    data = fetcher.fetch(index)\n'
    "OSError: [Errno 5] Input/output error: '/data/shard-3.bin'\n"
)
SPAWNED = (
    "\n\n-- Process 1 terminated with the following error:\nTraceback (most recent call last):\n"
    '  File "/x/spawn.py", line 90, in _wrap\n    fn(i, *args)\ntorch.OutOfMemoryError: CUDA out of memory.\nTried to allocate 2.00 GiB\n'
)


def test_a_traceback_of_another_process_is_that_processs_exception(tmp_path: Path) -> None:
    assert said(OSError(LOADER)) == ("OSError", "[Errno 5] Input/output error: '/data/shard-3.bin'")
    assert said(Exception(SPAWNED)) == ("OutOfMemoryError", "CUDA out of memory.\nTried to allocate 2.00 GiB")
    assert said(Exception("Traceback (most recent call last):\n  File x\nAssertionError\n")) == ("AssertionError", "")
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/sda1 / ext4 rw 0 0\n")
    assert disk_of(OSError(LOADER), mounts) == "local", "the disk of a data loader's file is this machine's too"


def test_what_another_machine_said_is_not_this_ranks_exception() -> None:
    ecc = "CUDA error: uncorrectable ECC error encountered"
    kind = type("RayTaskError(RuntimeError)", (RuntimeError,), {})
    error = kind(f"ray::W.run() (pid=11, ip=10.0.0.5)\nTraceback (most recent call last):\n  File x\nRuntimeError: {ecc}\n")
    error.__cause__ = RuntimeError(ecc)
    assert speaking(error) is error and is_victim(*said(error))


def test_an_exception_that_cannot_be_printed_is_reported_all_the_same() -> None:
    error = UnprintableError()
    with contextlib.suppress(TypeError):
        str(error)
    assert said(error)[0] == "UnprintableError" and fingerprint(error).startswith("UnprintableError|")
    assert said(KeyError("x")) == ("KeyError", "'x'") and said(RuntimeError()) == ("RuntimeError", "")
    assert said(SyntaxError("invalid syntax", ("x.py", 1, 1, "?"))) == ("SyntaxError", "invalid syntax")
