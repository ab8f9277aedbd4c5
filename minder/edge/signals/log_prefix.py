"""What launchers and loggers put before a line: colours, labels of ranks, processes and machines, time stamps, log levels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

__all__ = ["Writer", "read_writer", "strip_prefix"]

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)")
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_LABEL = re.compile(
    r"""\s*(?:
        \[rank[\s=_-]?(?P<rank>\d+)\]:?
      | \[(?:default|trainer|worker|node|local[_-]?rank)[\s_-]?(?P<local>\d+)\]:?
      | \[(?!(?:epoch|step|iter|batch|update|phase|stage|layer)[\w.-]*:)(?P<node>[a-z](?:[\w.-]*[\w-])?\d|\d+(?:\.\d+){3}):(?P<its>\d+)\]:?
      | \[pod/(?P<pod>[\w.-]+)/[\w.-]+\]
      | \{(?=[^{}]*\b(?:pod|host|hostname|node|node_name|instance)="(?P<loki>[\w.-]+))\w+="[^{}]*"\}
      | \((?:(?P<actor>\w[\w.:]*)\s+)?pid=(?P<pid>\d+)(?:,\s*ip=(?P<ip>[\w.:]+))?\)(?:\s*\[repeated[^\]]*\])?
      | \[(?:[\w.-]+@)?\d+,(?P<mpi>\d+)\]<std(?:out|err|diag)>:
      | \((?:[\w-]+,\s)?rank=(?P<sky>\d+),\s*pid=\d+(?:,\s*ip=[\w.:]+)?\)
      | [a-z]\w*/(?P<flux>\d+)\s+(?=[A-Za-z])
      | (?P<task>\d{1,6}):\s(?=\s*\S)
      | (?P<kind>(?:rank|node|host|worker|gpu)[\w.-]*\d):\s
      | (?P<host>[a-z]\w*-[\w.-]*\d[\w.-]*|\d{1,3}(?:\.\d{1,3}){3})(?::\s|\s+\|\s)(?!\s*\d+%\|)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_ALONE = re.compile(  # labels that would be the text's own before a line of a trainer, and are none before a line of a dump
    r"""\s*(?:
        \[(?P<rank>\d+)(?:/\d+)?\]:?
      | rank[\s=_-]?(?P<sky>\d+):
      | \[(?P<node>[a-z][\w.-]*)\]:?
      | (?P<task>\d{1,6}):
      | (?P<host>[a-z][\w.-]*):
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_STAMP = re.compile(
    rf"""\s*(?:
        \[?\d{{4}}[-/]\d\d[-/]\d\d[T\s]{_TIME}(?:Z|\s?[+-]\d\d:?\d\d)?\]?
      | \[?\d\d/\d\d(?:/\d{{2,4}})?\s{_TIME}\]?
      | \[?{_TIME}\]?(?=\s)
      | [IWE]\d{{3,8}}\s{_TIME}\s+\d+\s+(?:[\w.]+\s+)?[\w.]+:\d+\]
      | \[?(?:DEBUG|INFO|WARNING)\]?(?=[\s:|-])
      | [-|:](?=\s)
    )""",
    re.VERBOSE,
)
_REPEATED = re.compile(r"\s*\[repeated[^\]]*\]")


def strip_prefix(line: str) -> tuple[str, str]:
    """Who wrote the line ("" where no label says so), and the line without labels and stamps. Several labels are one writer: a pod's
    label is that of all its ranks.

    >>> strip_prefix("[rank3]: 2026-01-05 10:11:12,345 - INFO - step: 12")
    ('[rank3]', 'step: 12')
    """
    line = _ANSI.sub("", line)
    sources: list[str] = []
    at = 0
    while True:
        label = _LABEL.match(line, at)
        if label is not None and label.end() > at:
            sources.append(_REPEATED.sub("", label[0]).strip(" :|"))
        found = label or _STAMP.match(line, at)
        if found is None or found.end() == at:
            return " ".join(dict.fromkeys(sources)), line[at:].strip()
        at = found.end()


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wrote a line. rank: of the job; local: of its machine, or of a launcher there, which says nothing of the job's other machines.
    machine: "" where no label names it. counted: rank is a task's number, which is a machine's where one task starts all its ranks."""

    rank: int | None = None
    local: int | None = None
    machine: str = ""
    pid: int | None = None
    counted: bool = False


def read_writer(label: str) -> tuple[Writer, str] | None:
    r"""Whose label this is, and a pattern for it wherever it stands (the digits of its times differ); None where it is no label of one.

    >>> read_writer("[node1:3]: ")
    (Writer(rank=None, local=3, machine='node1', pid=None, counted=False), '\\[node1:3\\]:\\ ')
    """
    parts: dict[str, Any] = {}
    pattern, at = "", 0
    while label[at:].strip():
        found = _LABEL.match(label + "x", at)  # some stand before text only
        stamp = None if found else _STAMP.match(label + " ", at)
        found = found or (None if stamp else _ALONE.match(label, at))
        match = found or stamp
        if match is None or match.end() == at:
            return None
        text = label[at : match.end()]
        pattern += re.sub(r"\d+", r"\\d+", re.escape(text)) if stamp else re.escape(text)
        parts = {**{key: value for key, value in match.groupdict().items() if value}, **parts} if found else parts
        at = min(match.end(), len(label))
    writer = _writer(parts)
    return None if writer == Writer() else (writer, pattern + re.escape(label[at:]))


def _writer(parts: dict[str, Any]) -> Writer:
    """A task's number is a rank, unless the launcher that it stands for numbers ranks of its own."""
    rank, local = (parts.get("rank") or parts.get("sky")), (parts.get("local") or parts.get("its"))
    task = parts.get("task") or parts.get("flux") or parts.get("mpi")
    kind = parts.get("kind") or ""
    if named := re.fullmatch(r"rank[_-]?(\d+)", kind, re.IGNORECASE):
        rank, kind = rank or named[1], ""
    machine = parts.get("node") or parts.get("pod") or parts.get("loki") or parts.get("ip") or kind or parts.get("host") or ""
    counted = task is not None and rank is None and local is None
    if counted:
        rank = task
    elif task is not None and rank is None and not machine:
        machine = f"task{task}"
    pid = parts.get("pid")
    numbers = [None if part is None else int(part) for part in (rank, local, pid)]
    return Writer(numbers[0], numbers[1], machine, numbers[2], counted)
