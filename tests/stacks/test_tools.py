"""Every line of tools.toml: a place as a debugger writes it, and what one process that stands there alone leads to."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterator
from pathlib import Path

import frameworks as fw
import pytest

import minder.diagnose.stacks.roles as rules
from minder.diagnose.stacks import Capture, Frame, Process, Thread, analyse
from minder.diagnose.stacks.roles import read_frame, read_stack

TABLE = tomllib.loads(Path(rules.__file__).with_name("tools.toml").read_text())
WAIT = tuple(Frame(function, file, line) for function, file, line in fw.SYNC["plain"])
STEP = tuple(Frame(function, file.rsplit("site-packages/", 1)[-1], line) for function, file, line in fw.STEP["plain"])
MUTEX = (Frame("__lll_lock_wait", "libc.so.6", native=True), Frame("pthread_mutex_lock", "libc.so.6", native=True))
RULES = ("lock", "owner", "within", "over", "hint")


def lines(layers: tuple[str, ...]) -> Iterator[tuple[str, bool, str]]:
    for layer in layers:
        for entry in TABLE[layer]:
            yield from ((layer, False, pattern) for pattern in entry.get("patterns", ()))
            yield from ((layer, True, pattern) for pattern in entry.get("native", ()))


def frame_of(pattern: str, native: bool) -> Frame:
    """A frame that the pattern is written for: its wild parts stand for nothing, or for a name."""
    function, _, file = (part.strip() for part in pattern.partition(" @ "))
    name = function.replace("::*", "::run").replace("*", "") or "call"
    return Frame(
        name, f"{file or 'libx'}.so" if native else f"{file}x.py" if not file.endswith(".py") else file, 0 if native else 7, native
    )


def test_the_helper_makes_frames_that_fit() -> None:
    assert fnmatch.fnmatchcase(frame_of("libkineto::*", True).function, "libkineto::*")


@pytest.mark.parametrize(("layer", "native", "pattern"), list(lines(RULES)))
def test_who_stands_alone_in_a_tool_or_lock_of_the_program_is_not_evicted(layer: str, native: bool, pattern: str) -> None:
    frame = frame_of(pattern, native)
    assert getattr(read_frame(frame), layer) is not None
    inner = MUTEX if layer == "owner" else ()
    odd = Process("node-5", 105, 5, threads=(Thread((*inner, frame, *STEP), "MainThread", main=True),))
    peers = [Process(f"node-{rank}", 100 + rank, rank, threads=(Thread(WAIT, "MainThread", main=True),)) for rank in range(8) if rank != 5]
    finding = analyse(Capture((*peers, odd)))
    assert finding.evict == () and finding.blame in ("software", "workload")
    assert [suspect.machine for suspect in finding.suspects] == ["node-5"]


@pytest.mark.parametrize(("layer", "native", "pattern"), list(lines(("rest",))))
def test_a_main_thread_that_is_asked_for_nothing_is_idle(layer: str, native: bool, pattern: str) -> None:
    thread = Thread((frame_of(pattern, native), Frame("<module>", "default_worker.py", 3)), "MainThread", main=True)
    peers = [Process(f"node-{rank}", 100 + rank, rank, threads=(Thread(WAIT, main=True),)) for rank in range(2)]
    idle = [Process(f"node-{rank}", 100 + rank, rank, threads=(thread,)) for rank in range(2, 8)]
    finding = analyse(Capture((*peers, *idle)))
    assert (finding.evict, finding.suspects) == ((), ())


@pytest.mark.parametrize("pattern", TABLE["neutral"]["native"])
def test_how_a_thread_sleeps_says_nothing_and_hides_no_lock(pattern: str) -> None:
    sleeps = frame_of(pattern, True) if pattern != "??" else Frame("??", "libcuda.so", native=True)
    take = Frame("take_gil", "python3.10", native=True)
    device = Frame("cudaStreamSynchronize", "libcudart.so", native=True)
    assert "GIL" in read_stack((sleeps, take, *STEP)).reason
    assert read_stack((sleeps, device, *STEP)).reason == "waiting for its own device"


# What must stay as it is


@pytest.mark.parametrize(
    "inner",
    [
        ("cudaStreamSynchronize",),
        ("sched_yield", "??", "cuStreamSynchronize", "cudaStreamSynchronize"),
        ("poll", "??", "cuMemcpyDtoHAsync_v2", "cudaMemcpyAsync"),
        ("cudaMalloc", "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc"),
        ("pthread_cond_wait", "??", "cuEventSynchronize"),
    ],
)
def test_who_waits_for_its_own_device_without_a_lock_is_evicted_as_ever(inner: tuple[str, ...]) -> None:
    frames = (*(Frame(name, "libcuda.so", native=True) for name in inner), *STEP)
    odd = Process("node-5", 105, 5, threads=(Thread(frames, "MainThread", main=True),))
    peers = [Process(f"node-{rank}", 100 + rank, rank, threads=(Thread(WAIT, main=True),)) for rank in range(8) if rank != 5]
    finding = analyse(Capture((*peers, odd)))
    assert (finding.evict, finding.blame) == (("node-5",), "machine")


def test_a_driver_lock_behind_a_thread_that_waits_for_the_device_is_the_device() -> None:
    main = Thread((*MUTEX, Frame("??", "libcuda.so", native=True), *STEP), "python", 100, True)
    other = Thread((Frame("cuStreamSynchronize", "libcuda.so", native=True),), "pt_autograd_0", 101)
    odd = Process("node-5", 105, 5, threads=(main, other))
    peers = [Process(f"node-{rank}", 100 + rank, rank, threads=(Thread(WAIT, main=True),)) for rank in range(8) if rank != 5]
    assert analyse(Capture((*peers, odd))).suspects[0].reason.startswith("waiting for its own device")


@pytest.mark.parametrize(
    ("inner", "active", "blame"),
    [
        (MUTEX, True, "machine"),  # it polls, and passes through the mutex
        (MUTEX, False, "software"),
        (MUTEX, None, "software"),  # a debugger does not say
        ((Frame("pthread_spin_lock", "libc.so.6", native=True),), True, "software"),
    ],
)
def test_a_thread_on_a_processor_waits_for_no_mutex(inner: tuple[Frame, ...], active: bool | None, blame: str) -> None:
    frames = (*inner, Frame("poll_device", "train.py", 5), *STEP)
    odd = Process("node-5", 105, 5, threads=(Thread(frames, "MainThread", main=True, active=active),))
    peers = [Process(f"node-{rank}", 100 + rank, rank, threads=(Thread(WAIT, main=True),)) for rank in range(8) if rank != 5]
    assert analyse(Capture((*peers, odd))).blame == blame


def test_a_lock_inside_a_collective_is_a_part_of_it() -> None:
    frames = (*MUTEX, Frame("ncclEnqueueCheck", "libnccl.so", native=True), Frame("ncclAllReduce", "libnccl.so", native=True), *STEP)
    assert read_stack(frames).stance == "waits"


def test_a_log_that_reads_a_number_off_the_device_has_found_the_device() -> None:
    frames = (Frame("item", "torch/_tensor.py", 3), Frame("emit", "logging/__init__.py", 9), *STEP)
    assert read_stack(frames).stance == "may wait"


def test_a_second_look_that_shows_the_lock_takes_the_accusation_back() -> None:
    from minder.diagnose.stacks import analyse_captures

    def capture(frames: tuple[Frame, ...], time_s: float) -> Capture:
        odd = Process("node-5", 105, 5, threads=(Thread(frames, "MainThread", main=True),))
        peers = [Process(f"node-{rank}", 100 + rank, rank, threads=(Thread(WAIT, main=True),)) for rank in range(8) if rank != 5]
        return Capture((*peers, odd), time_s)

    line = (Frame("own_code", "train.py", 5), *STEP)
    first, second = capture(line, 0.0), capture((Frame("take_gil", "python3.10", native=True), *line), 2.0)
    assert analyse_captures([first]).evict == ("node-5",)
    finding = analyse_captures([first, second])
    assert (finding.evict, finding.blame) == ((), "software")
