"""What the tools really write, from real processes, and what is left of it when it is cut off or spoilt."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import places as at
import pytest
from dumps import FORMATS, spy_json, spy_text

from minder.diagnose.stacks import Capture, Frame, Process, Thread, analyse, read_dumps
from minder.diagnose.stacks.roles import Role
from minder.diagnose.stacks.threads import read_role

DATA = Path(__file__).parent / "data"


def threads_of(content: bytes) -> tuple[Thread, ...]:
    (dump,) = read_dumps(content)
    assert dump.problem == ""
    return dump.threads


def role_of(path: Path) -> Role:
    return read_role(Process("node-1", threads=threads_of(path.read_bytes())))


# Real processes


@pytest.mark.parametrize("ending", ["json", "fault"])
def test_a_real_sleeper_is_found_in_real_dumps(ending: str) -> None:
    processes = [
        Process(f"node-{rank}", rank=rank, threads=threads_of((DATA / f"sleeping/rank{rank}.{ending}").read_bytes())) for rank in range(4)
    ]
    finding = analyse(Capture(tuple(processes)))
    assert (finding.evict, finding.blame) == (("node-1",), "machine")
    assert [len(group.processes) for group in finding.groups] == [3, 1]


def test_one_dump_with_compiled_frames_tells_where_its_peers_are() -> None:
    """DDP waits for its gradients in compiled code: without --native py-spy shows nothing but the backward pass."""
    endings = {0: "native.json", 1: "native.json", 2: "json", 3: "json"}
    processes = [
        Process(f"node-{rank}", threads=threads_of((DATA / f"sleeping/rank{rank}.{end}").read_bytes())) for rank, end in endings.items()
    ]
    finding = analyse(Capture(tuple(processes)))
    assert finding.evict == ("node-1",)
    assert finding.suspects[0].reason == "outside any collective: sleeping"


@pytest.mark.parametrize(
    ("file", "kind", "stance"),
    [
        ("sleeping/rank0.gdb", "collective", "waits"),
        ("sleeping/rank1.gdb", "idle", "outside"),
        ("sleeping/rank1.txt", "other", "unclear"),
        ("sleeping/rank1.native.json", "idle", "outside"),
        ("receiving/rank1.gdb", "point to point", "waits"),
        ("receiving/rank0.gdb", "collective", "waits"),
        ("loader/rank0.json", "data loading", "outside"),
        ("loader/rank3.fault", "data loading", "outside"),
    ],
)
def test_what_real_processes_do(file: str, kind: str, stance: str) -> None:
    role = role_of(DATA / file)
    assert (role.kind, role.stance, role.part) == (kind, stance, "")


def test_a_real_data_loading_worker_is_told_from_its_rank() -> None:
    workers = sorted((DATA / "loader").glob("*child*"))
    assert workers
    assert {role_of(path).part for path in workers} == {"a data-loading worker"}


def test_one_dump_of_another_tool_among_the_rest_is_no_other_place() -> None:
    """Seven in the backward pass by py-spy, one in the same wait by gdb, which sees compiled code only."""
    endings = ["json", "fault", "json", "fault", "json", "fault", "json", "gdb"]
    dumps = [(DATA / f"sleeping/rank{0 if ending == 'gdb' else 2}.{ending}").read_bytes() for ending in endings]
    finding = analyse(Capture(tuple(Process(f"node-{rank}", rank=rank, threads=threads_of(dump)) for rank, dump in enumerate(dumps))))
    assert (finding.suspects, finding.evict) == ((), ())


# Formats


@pytest.mark.parametrize("dump", list(FORMATS))
def test_every_format_tells_the_same_frames(dump: str) -> None:
    threads = threads_of(FORMATS[dump]([at.LOADER_WAIT, at.PIN_MEMORY], 4711))
    main = next(thread for thread in threads if thread.main)
    told = [(frame.function, frame.line) for frame in main.frames if not frame.native]
    assert told == [(function, line) for function, _, line in at.LOADER_WAIT]
    assert len(threads) == 2


def test_versions_paths_lines_and_qualified_names_do_not_split_a_group() -> None:
    older = [
        (function, file.replace("python3.11", "python3.9").replace("/opt/venv", "/home1/anaconda3"), line + 40)
        for function, file, line in at.GRAD_SYNC
    ]
    newer = [(f"Bucket.{function}" if function == "start_grad_sync" else function, file, line) for function, file, line in at.GRAD_SYNC]
    roles = [
        read_role(Process("m", threads=threads_of(write([frames], 1))))
        for frames in (at.GRAD_SYNC, older, newer)
        for write in FORMATS.values()
    ]
    assert len({role.key for role in roles}) == 1


@pytest.mark.parametrize(
    "layout", [{"indent": 2}, {"indent": 1}, {"separators": (",", ":")}, {"sort_keys": True}, {"indent": 4, "sort_keys": True}]
)
def test_json_may_be_laid_out_in_any_way(layout: dict[str, Any]) -> None:
    text = (DATA / "loader" / "rank0.json").read_text()
    assert threads_of(json.dumps(json.loads(text), **layout).encode()) == threads_of(text.encode())
    strange = text.replace('"thread_name": "MainThread"', '"thread_name": "a \\"quoted\\" {name"')
    assert {thread.name for thread in threads_of(strange.encode())} >= {'a "quoted" {name'}


def test_local_variables_are_passed_over_and_never_kept() -> None:
    text = spy_text([at.READ_PLAIN], 7).decode().replace("    main (", '        Locals:\n            token: "secret (x:1)"\n    main (')
    threads = threads_of(text.encode())
    assert [frame.function for frame in threads[0].frames] == ["read_file", "main", "<module>"]
    spied = json.loads(spy_json([at.READ_PLAIN], 7))
    spied[0]["frames"][0]["locals"] = [{"name": "token", "repr": "secret"}]
    assert "secret" not in repr(threads_of(json.dumps(spied).encode()))


def test_gdb_names_of_compiled_code_are_bared() -> None:
    text = (
        'Thread 1 (Thread 0x7f00 (LWP 12) "python"):\n'
        "#0  0x00007f in pthread_cond_wait@@GLIBC_2.3.2 () from /lib64/libpthread.so.0\n"
        "#1  0x00007f in gloo::transport::tcp::UnboundBuffer::waitRecv(int*, std::ratio<1l, std::pair<1l> >) () from /x/libtorch_cpu.so\n"
        "#2  0x00007f in c10d::(anonymous namespace)::AsyncBroadcastWork::run() [clone .constprop.0] () from /x/libtorch_cpu.so\n"
        "#3  0x00007f in ?? () from /x/libcuda.so.1\n"
    )
    (thread,) = threads_of(text.encode())
    assert [frame.function for frame in thread.frames] == [
        "pthread_cond_wait",
        "gloo::transport::tcp::UnboundBuffer::waitRecv",
        "c10d::AsyncBroadcastWork::run",
        "??",
    ]
    assert thread.main


def test_gdb_addresses_do_not_tell_places_apart_and_names_and_paths_are_not_addresses() -> None:
    """Where a library lies in memory differs from process to process."""

    def text(base: int, path: str) -> bytes:
        lines = [
            f'Thread 1 (Thread 0x{base:x} (LWP 12) "python"):',
            f"#0  0x{base + 9:x} in sym_0x{base:x}_wait (work=0x{base + 77:x}, flags=(int *) 0x{base:x}) from /x/{path}/libw.so",
            f"#1  0x{base + 5:x} in _PyEval_EvalFrameDefault (f=Frame 0x{base + 3:x}, for file /data/{path}/t.py, line 3, in go ()) at c:1",
        ]
        return "\n".join([*lines, f"[Inferior 1 (process {base}) detached]"]).encode()

    first, second = threads_of(text(0x7F01, "0x7f01"))[0].frames, threads_of(text(0x7F02, "0x7f01"))[0].frames
    assert first[1] == second[1] == Frame("go", "/data/0x7f01/t.py", 3)
    assert first[0].function != second[0].function, "a name that holds digits is another name"
    assert threads_of(text(0x7F01, "0x7f02"))[0].frames[1].file == "/data/0x7f02/t.py"


def test_py_bt_and_a_traceback_are_stacks_too() -> None:
    outer, inner = '  File "/srv/a.py", line 9, in <module>\n', '  File "/srv/a.py", line 3, in read_file\n'
    py_bt = f"Traceback (most recent call first):\n  <built-in method read>\n{inner}    read()\n{outer}"
    interrupt = f"Traceback (most recent call last):\n{outer}    go()\n{inner}KeyboardInterrupt\n"
    for text in (py_bt, interrupt):
        (thread,) = threads_of(text.encode())
        assert [frame.function for frame in thread.frames] == ["read_file", "<module>"]


def test_several_processes_in_one_file_are_told_apart() -> None:
    dumps = read_dumps(spy_text([at.GRAD_SYNC], 11) + b"\n" + spy_text([at.READ], 12))
    assert [dump.pid for dump in dumps] == [11, 12]
    assert dumps[1].threads[0].frames[0].function == "read_shard"


# Spoilt


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b'[{"pid": 1, "frames": [', "cut off"),
        (b'{"a": 1}', "not py-spy"),
        (b"Error: Permission Denied: Try running again with elevated permissions", "Permission Denied"),
        (b"ptrace: Operation not permitted.", "not permitted"),
        (b"Process 307: /usr/bin/python train.py --lr 1\nPython v3.11\n", "no frames"),
        (b"\x00\x01\x02\xff\xfe garbage", "no stack dump"),
        (b"hello world", "no stack dump"),
    ],
)
def test_what_cannot_be_read_says_why(content: bytes, problem: str) -> None:
    (dump,) = read_dumps(content)
    assert problem in dump.problem
    assert dump.threads == ()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_editors_and_terminals_may_have_recoded_a_dump(encoding: str) -> None:
    text = spy_text([at.GRAD_SYNC], 7).decode().replace("\n", "\r\n")
    assert threads_of(text.encode(encoding))[0].frames[0].function == "all_reduce"


def test_broken_letters_do_not_hide_the_rest() -> None:
    content = spy_text([at.GRAD_SYNC], 7).replace(b"/opt/venv/bin/python", b"/opt/\xff\xfe\x80/python")
    assert len(threads_of(content)[0].frames) == len(at.GRAD_SYNC)


@pytest.mark.parametrize("seed", range(8))
def test_no_spoilt_dump_is_more_than_a_problem(seed: int) -> None:
    """Cut, spliced and overwritten dumps of every tool: always an answer, a stack or why there is none."""
    chance = random.Random(seed)
    whole = [path.read_bytes() for path in sorted(DATA.glob("*/*"))] + [write([at.READ, at.TQDM], 7) for write in FORMATS.values()]
    for _ in range(25):
        content = bytearray(chance.choice(whole))
        other = chance.choice(whole)
        content = content[: chance.randrange(len(content))] + other[chance.randrange(len(other)) :]
        for _ in range(chance.randrange(20)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        for dump in read_dumps(bytes(content)):
            assert bool(dump.problem) != any(thread.frames for thread in dump.threads)


def test_deeply_nested_json_is_only_broken() -> None:
    (dump,) = read_dumps(b'{"a":' * 100_000)
    assert "broken" in dump.problem
