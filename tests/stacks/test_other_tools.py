"""Dumps of tools other than py-spy, faulthandler and gdb, in the shapes in which people keep them, and names and folders of files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from dumps import faulthandler_text

from minder.diagnose.stacks import Finding, analyse_captures, find_job_file, place_ranks, read_captures, read_dumps
from minder.diagnose.stacks.reader import Owner, read_name
from minder.ingest.sources.jobfile import read_job
from minder.model.errors import BadInputError

Line = tuple[str, str, int]
WAIT: list[Line] = [
    ("all_reduce", "torch/distributed/distributed_c10d.py", 2806),
    ("train_step", "trainer.py", 150),
    ("<module>", "train.py", 55),
]
READ: list[Line] = [("read_file", "app/meta.py", 31), ("train_step", "trainer.py", 150), ("<module>", "train.py", 55)]
NCCL = ["__futex_abstimed_wait_common64", "pthread_cond_wait@@GLIBC_2.3.2", "c10d::ProcessGroupNCCL::WorkNCCL::wait", "_start"]
SYNC = ["ioctl", "cuStreamSynchronize", "cudaStreamSynchronize", "_start"]


def pystack(frames: list[Line], pid: int) -> str:
    lines = [f"Traceback for thread {pid} (python) [Has the GIL] (most recent call last):"]
    for function, file, line in reversed(frames):
        lines += [f'    (Python) File "/opt/{file}", line {line}, in {function}', "        do_it()"]
    beside = '    (Python) File "/usr/lib/python3.11/threading.py", line 331, in wait'
    return "\n".join([*lines, "", f"Traceback for thread {pid + 1} (python) [] (most recent call last):", beside, ""])


def own_script(frames: list[Line], pid: int) -> str:
    lines = [f"--- Thread MainThread ({pid}) ---"]
    for function, file, line in reversed(frames):
        lines += [f'  File "/opt/{file}", line {line}, in {function}', "    do_it()"]
    return "\n".join([*lines, f"--- Thread Thread-1 ({pid + 1}) ---", '  File "/usr/lib/python3.11/threading.py", line 331, in wait', ""])


def recipe(frames: list[Line], pid: int) -> str:
    lines = [f"# Thread: MainThread(140{pid})"]
    for function, file, line in reversed(frames):
        lines += [f'File: "/opt/{file}", line {line}, in {function}', "  do_it()"]
    return "\n".join(lines)


def counted(frames: list[Line], pid: int) -> str:
    stack = ";".join(f"{function} ({file}:{line})" for function, file, line in reversed(frames))
    return f'process {pid}:"python train.py";{stack} 300\nprocess {pid}:"python train.py";<module> (train.py:55) 2\n'


def server_log(frames: list[Line], pid: int) -> str:
    lines = [f"[2026-01-29 13:12:37 TP1] Pyspy dump for PID {pid}:", f"Process {pid}: engine::scheduler_TP1", "Python v3.12.3", ""]
    lines += [f'Thread {pid} (idle): "MainThread"', *(f"    {function} ({file}:{line})" for function, file, line in frames)]
    return "\n".join([*lines, "", "[2026-01-29 13:12:38 TP1] Scheduler watchdog timeout (self.watchdog_timeout=300)", ""])


def old_mac(frames: list[Line], pid: int) -> str:
    return server_log(frames, pid).replace("\n", "\r")


def pasted(frames: list[Line], pid: int) -> str:
    return server_log(frames, pid).replace("    ", "\u00a0\u00a0\u00a0\u00a0")


@pytest.mark.parametrize("write", [pystack, own_script, recipe, counted, server_log, old_mac, pasted])
@pytest.mark.parametrize("frames", [WAIT, READ])
def test_python_frames_are_read_from(write: Callable[[list[Line], int], str], frames: list[Line]) -> None:
    (dump,) = read_dumps(write(frames, 4211).encode())
    main = next(thread for thread in dump.threads if thread.main)
    assert [frame.function for frame in main.frames] == [function for function, _, _ in frames]
    assert [frame.line for frame in main.frames] == [line for _, _, line in frames]


def eu_stack(names: list[str], pid: int) -> str:
    frames = "".join(f"#{level}  0x00007f12     {name} - /usr/lib/libx.so\n    ../x.c:3:1\n" for level, name in enumerate(names))
    return f"PID {pid} - process\nTID {pid}:\n{frames}TID {pid + 1}:\n#0  0x00007f12     __poll\n"


def lldb(names: list[str], pid: int) -> str:
    frames = "".join(f"    frame #{level}: 0x00007f12 libx.so`{name} + 200\n" for level, name in enumerate(names))
    other = "  thread #2, name = 'cuda-EvtHandlr'\n    frame #0: 0x00007f12 libc.so.6`__poll + 79\n"
    return f"(lldb) process attach --pid {pid}\n* thread #1, name = 'python', stop reason = signal SIGSTOP\n{frames}{other}"


def cuda_gdb(names: list[str], pid: int) -> str:
    frames = "".join(f"#{level}  0x00007f12 in {name} () from /lib/libx.so\n" for level, name in enumerate(names))
    stopped = 'Thread 1 "python" received signal SIGINT, Interrupt.\n0x00007f68 in poll () from /lib/libc.so.6'
    return f"{stopped}\n(cuda-gdb) bt\n{frames}(cuda-gdb) quit\n"


@pytest.mark.parametrize("write", [eu_stack, lldb, cuda_gdb])
@pytest.mark.parametrize("names", [NCCL, SYNC])
def test_compiled_frames_are_read_from(write: Callable[[list[str], int], str], names: list[str]) -> None:
    (dump,) = read_dumps(write(names, 4211).encode())
    main = next(thread for thread in dump.threads if thread.main)
    assert [frame.function.partition("@@")[0] for frame in main.frames] == [name.partition("@@")[0] for name in names]
    assert all(frame.native for frame in main.frames)


@pytest.mark.parametrize(
    "words",
    [
        "warning: process 5001 is already traced by process 5002",
        "sudo: a password is required",
        'error: unable to upgrade connection: container not found ("trainer")',
        "Error response from daemon: container 77 is not running",
        "srun: error: Unable to confirm allocation for job 81: Invalid job id specified",
        "timeout: the monitored command dumped core",
    ],
)
def test_whatever_stands_in_the_place_of_a_dump_is_passed_on(words: str, tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"node-{rank}_pid{4000 + rank}.txt").write_text(f"{words}\n")
    with pytest.raises(BadInputError, match="3 of 3 say") as error:
        read_captures(tmp_path)
    assert words in str(error.value)


# Names and folders


@pytest.mark.parametrize(
    ("name", "folder", "owner"),
    [
        ("node-0007_pid4211.txt", "", Owner("node-0007", 4211)),
        ("node-0007-rank3.dump", "", Owner("node-0007", None, 3)),
        ("node-0007_rank3_pid4211.txt", "", Owner("node-0007", 4211, 3)),
        ("rank3_pid9", "", Owner("rank3", 9, 3)),  # without a machine's name
        ("rank_3.txt", "", Owner("rank3", None, 3)),
        ("rank-3-site_pid9.txt", "", Owner("rank-3-site", 9)),
        ("rank3.txt", "node-0007", Owner("node-0007", None, 3)),
        ("pid_4211_rank_3.log", "node-0007", Owner("node-0007", 4211, 3)),
        ("4211.txt", "node-0007", Owner("node-0007", 4211)),
        ("notes.txt", "node-0007", None),
        ("README", "", None),
    ],
)
def test_whose_a_file_is(name: str, folder: str, owner: Owner | None) -> None:
    assert read_name(name, folder) == owner


def judge(folder: Path) -> Finding:
    job_file = find_job_file(folder)
    topology = read_job(job_file).topology() if job_file else None
    return analyse_captures(place_ranks(read_captures(folder), topology, {}), topology)


def test_a_folder_for_each_machine(tmp_path: Path) -> None:
    for rank in range(8):
        home = tmp_path / f"node-{rank // 2}"
        home.mkdir(exist_ok=True)
        (home / f"rank{rank}.txt").write_text(server_log(READ if rank == 5 else WAIT, 4000 + rank))
    assert judge(tmp_path).evict == ("node-2",)


@pytest.mark.parametrize("name", ["job4711_node-{0}.example_rank{0}.txt", "rank_{0}.txt", "spy-node-{0}-{1}.txt"])
def test_the_machines_of_the_job_are_found_in_names_that_say_more_or_less(name: str, tmp_path: Path) -> None:
    for rank in range(8):
        (tmp_path / name.format(rank, 4000 + rank)).write_text(server_log(READ if rank == 5 else WAIT, 4000 + rank))
    names = ", ".join(f'"node-{rank}"' for rank in range(8))
    (tmp_path / "job.toml").write_text(
        f'name = "job"\nmachines = [{names}]\ngpus_per_machine = 1\n[parallelism]\ntensor = 1\npipeline = 1\ndata = 8\n'
    )
    assert judge(tmp_path).evict == ("node-5",)


@pytest.mark.parametrize("why", ["Segmentation fault", "Bus error", "Illegal instruction"])
def test_where_a_process_crashed_is_no_place_where_it_stands(why: str) -> None:
    dump = faulthandler_text([[("read", "<frozen io>", 300), ("main", "/workspace/train.py", 50)]], 4005).decode()
    assert why in read_dumps(f"Fatal Python error: {why}\n\n{dump}".encode())[0].problem
    assert read_dumps(f"Fatal Python error: Aborted\n\n{dump}".encode())[0].is_stack  # sent to have the stacks, perhaps
    assert read_dumps(f"Fatal Python error: {why}\n\n{dump}\n{dump}".encode())[0].is_stack  # a newer one, of a rank that was started again
