"""Captures from dumps on disk, and from what the agents answer (docs/stacks.md).

A folder holds one file per process, or a folder per machine, processes.json, and captures in folders of their own. A rank's log may be
larger than what is worth reading: its newest dump stands last, so the end of a file is read.
Whose a dump is says its name, or the folder of a machine that it lies in (`read_name`).
"""

from __future__ import annotations

import codecs
import errno
import gzip
import json
import logging
import os
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from minder.diagnose.stacks.formats import parse_json
from minder.diagnose.stacks.records import Capture, Process
from minder.diagnose.stacks.sniff import Dump, read_dumps
from minder.edge.signals.log_prefix import Writer
from minder.model.errors import BadInputError
from minder.model.topology import Topology

__all__ = [
    "Owner",
    "capture_from_agents",
    "find_job_file",
    "machine_in",
    "place_ranks",
    "read_captures",
    "read_end",
    "read_name",
    "rows_in",
]

_log = logging.getLogger(__name__)
_CAPTURE = re.compile(r"^\d{8}T\d{6}(?:\.\d+)?Z$")
_NOT_DUMPS = frozenset({"processes.json", "job.toml", "ranks.json", "devices.json", "truth.json", "labels.json", "events.jsonl"})
_NO_SUFFIXES = frozenset(
    {".md", ".toml", ".parquet", ".jsonl", ".png", ".svg", ".csv", ".yaml", ".yml", ".pt", ".bin", ".safetensors", ".npz", ".npy"}
)
_MOST_BYTES = 32 << 20
_NO_WORDS = ("the dump is empty", "the file is no stack dump of py-spy, faulthandler or gdb", "the dump holds no frames")
_MEND = (
    (re.compile(r"traceback of an exception"), "that is how a program failed: dump processes that stand"),
    (re.compile(r"has crashed with"), "its log and its core file say why: dump processes that stand"),
    (re.compile(r"denied|not permitted|EPERM|EACCES|ptrace", re.IGNORECASE), "dump as root or with CAP_SYS_PTRACE"),
    (re.compile(r"No such process|ESRCH|gone|terminated|No such file", re.IGNORECASE), "the process had ended: its log says why"),
)


@dataclass(frozen=True, slots=True)
class _Known:
    """What processes.json says of one file."""

    machine: str | None
    pid: int | None
    rank: int | None
    state: str


def read_captures(folder: Path) -> tuple[Capture, ...]:
    """Captures, oldest first: the folder itself, or its sub-folders named like 20260302T061231Z. One without any stack is passed over:
    it says nothing of what others show. Raises BadInputError."""
    if not folder.is_dir():
        raise BadInputError(f"{folder} is no folder: give one with stack dumps, one file per process")
    home = folder / "stacks" if (folder / "stacks").is_dir() and not _has_dumps(folder) else folder
    named = sorted(path for path in home.iterdir() if path.is_dir() and _CAPTURE.match(path.name))
    moments = [path for path in named if _time_s(path) is not None]
    for path in named:
        if path not in moments:
            _log.warning("%s: no such day or hour, ignored (name captures like 20260302T061231Z)", path)
    captures = [_read_capture(path) for path in moments] or [_read_capture(home)]
    found = tuple(capture for capture in captures if capture.processes)
    if not any(process.threads for capture in found for process in capture.processes):
        raise BadInputError(_nothing_readable(folder, [process for capture in found for process in capture.processes]))
    for capture in found:
        _warn(home, capture)
    return tuple(capture for capture in found if any(process.threads or process.state for process in capture.processes))


def _nothing_readable(folder: Path, silent: Sequence[Process]) -> str:
    """What the tools themselves said, and how to mend it."""
    said = Counter(process.problem for process in silent if process.problem and process.problem not in _NO_WORDS)
    if not said:
        return f"{folder} holds no readable stack dump: put py-spy, faulthandler or gdb output in it, named <machine>_pid<PID>"
    words, count = said.most_common(1)[0]
    others = f" and {len(said) - 1} other reasons" if len(said) > 1 else ""
    mend = next((how for what, how in _MEND if what.search(words)), "take the dumps again")
    return f"{folder} holds no readable stack dump: {count} of {len(silent)} say: {words}{others}: {mend}"


def _warn(home: Path, capture: Capture) -> None:
    """What was left out, in a line each: the findings name it in full."""
    silent = [process for process in capture.processes if not process.threads]
    if silent:
        more = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
        _log.warning("%s: no stack of %s (%s)%s", home, silent[0].name, silent[0].problem, more)
    if capture.ignored:
        _log.warning("%s: no stack dumps, ignored: %s", home, ", ".join(capture.ignored[:10]))


def find_job_file(folder: Path) -> Path | None:
    """The job.toml beside the dumps: in the folder, or above it where the folder is part of a recording."""
    here = folder.resolve()
    homes = [here] + ([here.parent] if here.name == "stacks" else []) + ([here.parent.parent] if here.parent.name == "stacks" else [])
    return next((home / "job.toml" for home in homes if (home / "job.toml").is_file()), None)


def _has_dumps(folder: Path) -> bool:
    return (folder / "processes.json").is_file() or any(path.is_file() and read_name(path.name) for path in folder.iterdir())


def _read_capture(folder: Path) -> Capture:
    known = _read_processes(folder / "processes.json")
    processes, ignored = _read_files(folder, known)
    if not processes:  # a folder for each machine
        for home in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
            found, _ = _read_files(home, known, home.name)
            processes += found
    processes = _newest_files(processes)
    for name, entry in known.items():  # listed, but not dumped
        machine = entry.machine or name
        processes.append(Process(machine, entry.pid, entry.rank, entry.state, problem="there is no dump of it", file=name))
    return Capture(tuple(processes), _time_s(folder), folder.name, tuple(ignored))


def _newest_files(processes: Sequence[Process]) -> list[Process]:
    """Several files of one process are several dumps of it, as in a file that holds several: the last that shows a stack counts, by the
    numbers in their names, which are times or rounds."""
    newest: dict[tuple[object, ...], Process] = {}
    for process in sorted(processes, key=lambda one: _counted(one.file)):
        is_known = process.pid is not None or process.rank is not None
        key = (process.machine, process.pid, process.rank, "" if is_known else process.file)
        if process.threads or key not in newest or not newest[key].threads:
            newest[key] = process
    kept = {id(process) for process in newest.values()}
    return [process for process in processes if id(process) in kept]


def _counted(name: str) -> list[tuple[str, int]]:
    """A name as texts and numbers, so that 10 comes after 9."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name)]


def _read_files(folder: Path, known: dict[str, _Known], machine: str = "") -> tuple[list[Process], list[str]]:
    """Processes of the files of one folder, and the names of those that are no dumps. `known` loses what is found."""
    processes: list[Process] = []
    ignored: list[str] = []
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if _is_file(entry))
    for name in names:
        if name not in _NOT_DUMPS and not name.startswith("."):
            found = _read_file(folder / name, known.pop(name, None), machine)
            processes += found
            ignored += [] if found else [name]
    return processes, ignored


def _is_file(entry: os.DirEntry[str]) -> bool:
    """False too for a link that leads to itself, of which nothing can be read."""
    try:
        return entry.is_file()
    except OSError:
        return False


def _time_s(folder: Path) -> float | None:
    """When a capture was taken, by its folder's name; None where that is no time."""
    if not _CAPTURE.match(folder.name):
        return None
    try:
        return datetime.strptime(folder.name[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:  # digits, but no day or hour
        return None


def _read_file(path: Path, entry: _Known | None, home: str = "") -> list[Process]:
    """The processes of one file; none if it is no dump and processes.json does not list it."""
    name = read_name(path.name, home)
    if entry is None and name is None and (home or path.suffix.lower() in _NO_SUFFIXES):
        return []
    try:
        dumps: Sequence[Dump] = read_dumps(read_end(path, _MOST_BYTES))
    except OSError as error:
        dumps = (Dump(problem=f"the file cannot be read: {error.strerror}"),)
    if entry is None and name is None and not any(dump.is_stack for dump in dumps):
        return []
    machine = entry.machine if entry and entry.machine else (name.machine if name else home or path.name.split(".")[0])
    pid = entry.pid if entry and entry.pid is not None else (name.pid if name else None)
    rank = entry.rank if entry and entry.rank is not None else (name.rank if name else None)
    state = entry.state if entry else ""
    if dumps[0].writer is not None:
        return [_labelled(dump, dump.writer, machine, path.name, state) for dump in dumps if dump.writer is not None]
    if pid is not None or rank is not None:
        dump = _of_process(dumps, pid)
        return [Process(machine, pid, rank, state, dump.threads, dump.problem, path.name, title=dump.title)]
    return [Process(machine, dump.pid, rank, state, dump.threads, dump.problem, path.name, dump.is_below, dump.title) for dump in dumps]


def _labelled(dump: Dump, writer: Writer, machine: str, file: str, state: str) -> Process:
    """Of a rank, which the job's ranks place on its machine, or of a machine; else of the file's machine, one of its ranks."""
    machine = writer.machine or (machine if writer.rank is None else f"rank{writer.rank}")
    title = dump.title or ("" if writer.local is None else f"local rank {writer.local}")
    pid = dump.pid if dump.pid is not None else writer.pid
    return Process(machine, pid, writer.rank, state, dump.threads, dump.problem, file, dump.is_below, title, writer.counted)


def _of_process(dumps: Sequence[Dump], pid: int | None) -> Dump:
    """The dump of the process that the file is named after: by its pid, else the newest that py-spy does not call another's child."""
    own = [dump for dump in dumps if pid is not None and dump.pid == pid] or [dump for dump in dumps if not dump.is_below] or list(dumps)
    return next((dump for dump in reversed(own) if dump.is_stack), own[-1])


def _read_processes(path: Path) -> dict[str, _Known]:
    if not path.is_file():
        return {}
    try:
        items = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read: {error}: mend it or take it away") from error
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise BadInputError(f'{path}: give a list of objects like {{"file": "a.txt", "machine": "node-0007", "pid": 4211}}')
    return {_file_of(item, index): _known(item, index, path) for index, item in enumerate(items)}


def _file_of(item: Mapping[str, Any], index: int) -> str:
    file = item.get("file")
    return Path(file).name if isinstance(file, str) and file else f"entry {index + 1}"


def _known(item: Mapping[str, Any], index: int, path: Path) -> _Known:
    machine, pid, rank, state = item.get("machine"), item.get("pid"), item.get("rank"), item.get("state")
    for name, value in (("pid", pid), ("rank", rank)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise BadInputError(f"{path}, entry {index + 1}: {name} is {value!r}: give a whole number or null")
    if machine is not None and not isinstance(machine, str):
        raise BadInputError(f"{path}, entry {index + 1}: machine is {machine!r}: give a name")
    if machine is None and not isinstance(item.get("file"), str):
        raise BadInputError(f"{path}, entry {index + 1}: give the file or the machine")
    return _Known(machine, pid, rank, str(state).strip()[:1] if state else "")


def place_ranks(captures: Sequence[Capture], topology: Topology | None, pid_ranks: Mapping[tuple[str, int], int]) -> tuple[Capture, ...]:
    """Give ranks to processes known only by pid (ranks.json), and machines to those known only by rank."""
    return tuple(
        Capture(
            tuple(_placed(process, topology, pid_ranks) for process in _uncounted(capture.processes, topology)),
            capture.time_s, capture.name, capture.ignored,
        )
        for capture in captures
    )  # fmt: skip


def _uncounted(processes: Sequence[Process], topology: Topology | None) -> Sequence[Process]:
    """Tasks' numbers are ranks, unless all could be machines', each of which has several ranks: then it is not known whose they are."""
    numbers = [process.rank for process in processes if process.counted and process.rank is not None]
    if not numbers or topology is None or not max(numbers) < len(topology.machines) < len(topology.rank_machine):
        return processes
    return [replace(process, rank=None, machine=f"task{process.rank}") if process.counted else process for process in processes]


def _placed(process: Process, topology: Topology | None, pid_ranks: Mapping[tuple[str, int], int]) -> Process:
    if topology is not None and process.file and process.machine not in topology.machines:
        by_rank = topology.rank_machine.get(process.rank) if process.rank is not None and process.machine == f"rank{process.rank}" else None
        process = replace(process, machine=machine_in(process.file, topology.machines) or by_rank or process.machine)
    if process.rank is not None or process.pid is None:
        return process
    rank = pid_ranks.get((process.machine, process.pid))
    if rank is None and topology is not None:
        ranks = topology.ranks_of(process.machine)
        rank = ranks[0] if len(ranks) == 1 else None
    return process if rank is None else process.with_rank(rank)


_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 20
_MOST_UNPACKED = 1 << 30  # a file that unpacks to more is no dump
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_end(path: Path, most_bytes: int) -> bytes:
    """All of a file, or, where it is larger, its last bytes from the beginning of a line on; of a gzip what it unpacks to, also where its
    end is missing. Raises OSError."""
    with open(path, "rb", buffering=0) as file:
        if file.read(len(_GZIP)) == _GZIP:
            return _unpacked_end(file, most_bytes)
        file.seek(0)
        size = os.fstat(file.fileno()).st_size
        if size <= most_bytes:
            return file.read()
        begin = file.read(len(_MARKS[0]))
        file.seek(size - most_bytes + (size - most_bytes) % 2)  # an even place: letters of two bytes stay whole
        end = file.read()
    mark = begin if begin in _MARKS else b""
    return mark + end[end.find(b"\n") + 1 :] if not mark else mark + end


def _unpacked_end(file: BinaryIO, most_bytes: int) -> bytes:
    """No more than twice `most_bytes` is in memory at once."""
    file.seek(0)
    kept, begin, total = b"", b"", 0
    with gzip.open(file) as packed:
        while True:
            try:
                block = packed.read(_BLOCK)
            except EOFError:  # cut off: what was written before it is a dump all the same
                break
            except (gzip.BadGzipFile, zlib.error) as error:
                raise OSError(errno.EILSEQ, f"its gzip is damaged ({error})") from error
            if not block:
                break
            begin, total = begin or block[: len(_MARKS[0])], total + len(block)
            if total > _MOST_UNPACKED:
                raise OSError(errno.EFBIG, f"it unpacks to more than {_MOST_UNPACKED >> 20} MiB")
            kept += block
            if len(kept) > 2 * most_bytes:
                kept = kept[len(kept) - most_bytes - (total - most_bytes) % 2 :]
    if total <= most_bytes:
        return kept
    end = kept[len(kept) - most_bytes + (total - most_bytes) % 2 :]
    return begin + end if begin in _MARKS else end[end.find(b"\n") + 1 :]


def capture_from_agents(answers: Iterable[Mapping[str, Any]]) -> Capture:
    """One capture from the answers of all machines (minder.edge.agent.capture). The states of the `processes` part go with the stacks.

    A process that py-spy could not read keeps the reason as its problem. One below a rank (`parent`) that could not be read is left out
    unless its state says something, and so is one of which only a state is known: most are helpers. The capture's time is that of the
    latest answer.
    """
    processes: list[Process] = []
    times: list[float] = []
    for answer in answers:
        states = {row["pid"]: str(row.get("state") or "") for row in rows_in(answer, "processes") if isinstance(row.get("pid"), int)}
        found = [_process(str(answer.get("machine", "")), row, states) for row in rows_in(answer, "stacks")]
        processes += [process for process in found if process.threads or not process.child or process.state[:1] in ("D", "T")]
        times += [time_s] if isinstance(time_s := answer.get("time_s"), (int, float)) else []
    return Capture(tuple(processes), max(times, default=None))


def rows_in(answer: Mapping[str, Any], part: str) -> Sequence[Mapping[str, Any]]:
    """The objects in a list of an agent's answer; what is none is left out, and so is a part that is no list."""
    rows = answer.get(part)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _process(machine: str, row: Mapping[str, Any], states: Mapping[int, str]) -> Process:
    pid, rank = row.get("pid"), row.get("rank")
    threads = parse_json(row.get("data")) if row.get("format") == "py-spy-json" else None
    return Process(
        machine,
        pid if isinstance(pid, int) else None,
        rank if isinstance(rank, int) else None,
        states.get(pid, "") if isinstance(pid, int) else "",
        threads or (),
        "" if threads else str(row.get("data") or "the agent sent no stack")[:160],
        child=isinstance(row.get("parent"), int),
    )


_NAME = re.compile(r"^(?P<machine>.+?)(?:[_-]pid[_-]?(?P<pid>\d+)|[-_]rank[_-]?(?P<rank>\d+))(?=$|[._-])")
_EXACT = re.compile(  # as docs/stacks.md has it, to the end of the name: a machine's own name may hold "rank" or "pid" and a number
    r"^(?P<machine>.+?)(?:_pid(?P<pid>\d+)(?:[_-]rank\d+)?|-rank(?P<rank>\d+)(?:[_-]pid\d+)?)(?:\.[A-Za-z]\w*)*$"
)
_RANK_AT_END = re.compile(r"[_-]rank[_-]?(?P<rank>\d+)$")  # node-7_rank5_pid4211: no machine is called so
_RANK_ONLY = re.compile(r"^rank[_-]?(?P<rank>\d+)(?:[._-]pid[_-]?(?P<pid>\d+))?(?:\.\w+)*$")
_ALONE = re.compile(r"(?:^|[._-])(?:(?P<kind>pid|rank)[_-]?)?(?P<number>\d+)(?=$|[._-])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a file is, as far as its name says."""

    machine: str
    pid: int | None = None
    rank: int | None = None


def read_name(name: str, folder: str = "") -> Owner | None:
    """None where the name says nothing of a process. folder: of a machine, where each has one of its own.

    >>> read_name("node-0007_rank12_pid4211.txt")
    Owner(machine='node-0007', pid=4211, rank=12)
    >>> read_name("rank3.txt", folder="node-0007")
    Owner(machine='node-0007', pid=None, rank=3)
    """
    if folder:
        return _in_folder(name, folder)
    only = _RANK_ONLY.match(name)
    if only is not None:  # the job's ranks say which machine that is; without them each stands for itself
        return Owner(f"rank{only['rank']}", _number(only["pid"]), int(only["rank"]))
    found = _EXACT.match(name) or _NAME.match(name)
    if found is None:
        return None
    machine, pid, rank = found["machine"], _number(found["pid"]), _number(found["rank"])
    inner = _RANK_AT_END.search(machine) if pid is not None else None
    return Owner(machine, pid, rank) if inner is None or not inner.start() else Owner(machine[: inner.start()], pid, int(inner["rank"]))


def _in_folder(name: str, folder: str) -> Owner | None:
    """A number that nothing calls a rank is a pid."""
    numbers = {(found["kind"] or "").lower(): int(found["number"]) for found in reversed(list(_ALONE.finditer(name)))}
    if not numbers:
        return None
    return Owner(folder, numbers.get("pid", None if "rank" in numbers else numbers.get("")), numbers.get("rank"))


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def machine_in(file: str, machines: Collection[str]) -> str | None:
    """The one machine of the job whose name stands in a file's name: tools and jobs put their own names before it."""
    found = {machine for machine in machines if re.search(rf"(?<![A-Za-z0-9]){re.escape(machine)}(?![A-Za-z0-9])", file)}
    return found.pop() if len(found) == 1 else None
