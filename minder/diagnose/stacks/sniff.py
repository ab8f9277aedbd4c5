"""Which tool wrote a dump is seen from its content, never from the file's name.

A launcher or a log collector may have written a label before every line: `[rank3]: `, `3: `, `node-7: `, a time. The dump stands behind it.
Where one file holds the lines of many, each behind its rank or its machine, as a parallel shell or a scheduler prints them, the label says
whose a dump is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from minder.diagnose.stacks.formats import (
    as_gdb,
    ended_with,
    has_frames,
    holds_several,
    is_collapsed,
    json_documents,
    parse_collapsed,
    parse_faulthandler,
    parse_gdb,
    parse_json,
    parse_json_text,
    parse_text,
    parse_traceback,
    parse_tracebacks,
    process_sections,
)
from minder.diagnose.stacks.records import Thread
from minder.edge.signals.log_prefix import Writer, read_writer

__all__ = ["Dump", "by_label", "decode", "read_dumps", "without_labels"]

_SPY_THREAD = re.compile(r"^Thread(?: \w+)? \([a-z+ ]+\)|^Thread \d+ \(|^Process \d+: ", re.MULTILINE)
_SPY_STATE = re.compile(r"^Thread(?: (?:0x[0-9a-fA-F]+|\d+))? \((?:idle|active)", re.MULTILINE)
_SPY_FRAME = re.compile(r"^\s*\S.* \(\S+:\d+\)$", re.MULTILINE)
_GDB = re.compile(r"^#\d+\s+\S|^\(gdb\)|^[* ]\s*\d+\s+Thread 0x", re.MULTILINE)
_JSON = re.compile(r"\s*(?:\[\s*(?:\{|\]|$)|\{)")
_CRASHED = re.compile(r"^(?:Fatal Python error|Windows fatal exception): (?P<why>(?!Aborted).+)", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]|\x1b\(B")  # a terminal's colours, where its output was kept
_FAULT = re.compile(r"hread 0x[0-9a-fA-F]+.*\(most recent call first\)|^Stack \(most recent call first\)", re.MULTILINE)
_DETACHED = re.compile(r"\(process (\d+)\) detached")
_BANNER = re.compile(r"Process \d+: (?P<title>.*)")
_REFUSED = re.compile(
    r"^.*(?:[Ee]rror\b|ERROR|[Dd]enied|not permitted|[Ff]ailed|[Cc]ould not|[Cc]annot|[Tt]imed out|No such (?:process|file)"
    r"|EPERM|ESRCH|EACCES|ptrace|already terminated|^Reason:|not installed|command not found|did not answer).*$",
    re.MULTILINE,
)
_LOG = re.compile(r"\[|\d{4}-|frame #|RuntimeError|\w+Error: ")  # what a job's log begins its lines with
_MOST_REASONS = 3
_MOST_WORDS = 20_000  # a longer text is a log, whose errors are the job's
_BANNER_LETTERS = 2000
_MOST_LETTERS = 200


@dataclass(frozen=True, slots=True)
class Dump:
    """One process of a dump file. pid, title: what the dump itself says of it. `problem` is "" where there is a stack. is_below: py-spy
    printed it as a part of another process (`--subprocesses`)."""

    threads: tuple[Thread, ...] = ()
    pid: int | None = None
    problem: str = ""
    title: str = ""
    is_below: bool = False
    writer: Writer | None = None  # by the label before each of its lines, where a file holds those of several

    @property
    def is_stack(self) -> bool:
        return not self.problem


def decode(content: bytes) -> str:
    """Text of a dump in any encoding that a terminal or an editor may have left; what cannot be read becomes a question mark."""
    if content.startswith(b"\0\0"):  # a log that was emptied while it was written: its beginning is a hole
        content = content.lstrip(b"\0")
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", errors="replace")
    if content[:200].count(b"\0") > len(content[:200]) // 3:
        return content.decode("utf-16-le" if content[1:2] == b"\0" else "utf-16-be", errors="replace")
    text = content.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    text = text if "\n" in text else text.replace("\r", "\n")
    text = text.replace("\u00a0", " ") if not text.isascii() else text
    return _COLOUR.sub("", text) if "\x1b" in text else text


def read_dumps(content: bytes) -> tuple[Dump, ...]:
    """The processes in one dump file, at least one: where nothing can be read its `problem` says why. Of several dumps of one process
    the newest that shows a stack counts."""
    text = decode(content)
    if not text.strip():
        return (Dump(problem="the dump is empty"),)
    if _JSON.match(text):
        return _from_json(text)
    if parts := by_label(text):
        return tuple(replace(dump, writer=writer) for writer, part in parts.items() for dump in _of_writer(part, text))
    return _from_text(without_labels(text))


def _of_writer(part: str, text: str) -> tuple[Dump, ...]:
    """A writer's dumps; none can be trusted where lines are missing, or two processes wrote at once under one label."""
    if _LEFT_OUT.search(text):
        return (Dump(problem="Ray left out lines that several processes wrote alike: set RAY_DEDUP_LOGS=0"),)
    if _MIXED.search(part):
        return (Dump(problem="lines of several processes stand under one label, mixed"),)
    return _from_text(part)


def _from_text(text: str) -> tuple[Dump, ...]:
    if text.startswith("Process ") and "\nThread " in text:
        return _from_spy(text)
    if '"frames"' in text and (found := _from_documents(text)):
        return found
    if "(most recent call first):" in text and _FAULT.search(text):
        if crash := _crash(text):
            return (Dump(problem=f"no stack of a process that stands: it has crashed with {_printable(crash)}"),)
        return (_checked(parse_faulthandler(text), text),)
    text = as_gdb(text)
    if _GDB.search(text):
        attached = _DETACHED.findall(text)
        return (_checked(parse_gdb(text), text, int(attached[-1]) if attached else None),)
    if _SPY_STATE.search(text):
        return _from_spy(text)
    return _from_other(text)


def _crash(text: str) -> str:
    """What faulthandler says that the process died of; "" where a newer dump is below. An abort may be sent to have the stacks."""
    ended = list(_CRASHED.finditer(text))
    below = text[ended[-1].end() :] if ended else ""
    return ended[-1]["why"] if ended and below.count("Current thread 0x") <= 1 and "Timeout (" not in below else ""


def _from_other(text: str) -> tuple[Dump, ...]:
    """Tracebacks, counted stacks, frames alone, and words in the place of a dump."""
    if "Traceback for thread" in text:
        return (_checked(parse_tracebacks(text), text),)
    if exception := ended_with(text):
        return (Dump(problem=f"no stack dump, but the traceback of an exception: {_printable(exception)}"),)
    if "Traceback (most recent call" in text:
        return (_checked(parse_traceback(text), text),)
    if _SPY_THREAD.search(text):
        return _from_spy(text)
    if is_collapsed(text):
        return (_checked(parse_collapsed(text), text),)
    if has_frames(text):
        return (_checked(parse_tracebacks(text), text),)
    if _SPY_FRAME.search(text):  # frames alone, as people paste them
        frames = "".join(f"    {line.strip()}\n" for line in text.splitlines() if line.strip() and not line.startswith("#"))
        return (_checked(parse_text(f'Thread (idle): "MainThread"\n{frames}'), text),)
    return (Dump(problem=_said(text) or "the file is no stack dump of py-spy, faulthandler or gdb"),)


def _said(text: str) -> str:
    """What stands in the place of a dump: the words of a tool that was refused, or of whatever should have called it. A log is neither."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if _LOG.match(lines[0]):
        return ""
    if _REFUSED.match(lines[0]):  # a tool that is refused says nothing before that
        return _refusal(text)
    is_short = len(lines) <= _MOST_REASONS and " " in lines[0] and not {"\0", "\ufffd"} & set(text)
    return f"no stack dump; it says: {_printable('; '.join(lines))}" if is_short else ""


def _from_spy(text: str) -> tuple[Dump, ...]:
    sections = process_sections(text)
    threaded = [section for section in sections if "\nThread" in section[1]] if len(sections) > 1 else []
    return _newest_each(_from_section(part, pid) for pid, part in threaded or sections)


def _from_section(part: str, pid: int | None) -> Dump:
    found = _checked(parse_text(part, pid), part, pid)
    return Dump(found.threads, pid, found.problem, _title(part), "\nParent Process " in part[:_BANNER_LETTERS])


def _title(part: str) -> str:
    banner = _BANNER.match(part)
    return banner["title"].strip()[:_MOST_LETTERS] if banner else ""


def _newest_each(dumps: Iterable[Dump]) -> tuple[Dump, ...]:
    """One dump of each process, in the order in which the newest were written: the last that shows a stack, else the last."""
    newest: dict[int | None, Dump] = {}
    for dump in dumps:
        if dump.is_stack or dump.pid not in newest or not newest[dump.pid].is_stack:
            newest.pop(dump.pid, None)
            newest[dump.pid] = dump
    return tuple(newest.values())


def _from_json(text: str) -> tuple[Dump, ...]:
    quick = parse_json_text(text) if not holds_several(text) else None
    if quick is not None:
        return (_checked(quick[0], "", quick[1]),)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return _from_documents(text) or (Dump(problem="the dump is JSON that is cut off or broken"),)
    return (_from_document(data) or Dump(problem="the dump is JSON, but not py-spy's"),)


def _from_documents(text: str) -> tuple[Dump, ...]:
    """Of JSON documents one after the other, those of py-spy; none where there are none."""
    found = [dump for data in json_documents(text) if (dump := _from_document(data)) is not None]
    return _newest_each(found)


def _from_document(data: Any) -> Dump | None:
    threads = parse_json(data)
    if threads is not None:
        first = data[0] if isinstance(data, list) and data else data
        pid = first.get("pid") if isinstance(first, dict) else None
        return _checked(threads, "", pid if isinstance(pid, int) else None)
    if isinstance(data, dict) and isinstance(data.get("data"), str):  # the agent's own record of a process that could not be attached to
        return Dump(problem=data["data"][:_MOST_LETTERS])
    return None


def _checked(threads: tuple[Thread, ...], text: str, pid: int | None = None) -> Dump:
    if any(thread.frames for thread in threads):
        return Dump(threads, pid)
    return Dump(pid=pid, problem=_refusal(text) or "the dump holds no frames")


def _refusal(text: str) -> str:
    """What a tool that could not dump said of it: its error, and the reason below it. "" where it said nothing of the kind."""
    lines = [found.group().strip() for found in _REFUSED.finditer(text)] if len(text) < _MOST_WORDS else []
    return _printable("; ".join(dict.fromkeys(lines[-_MOST_REASONS:])))


def _printable(words: str) -> str:
    return "".join(letter for letter in words if letter.isprintable() and letter != "\ufffd")[:_MOST_LETTERS]


_HEAD = r"(?:(?:Current thread|Thread) (?:0x[0-9a-fA-F]+|\d+) ?[(\[]|Process \d+: )"
_PLAIN = re.compile(rf"^{_HEAD}", re.MULTILINE)
_MIXED = re.compile(r"^(Process )\d+: .*\n\1\d+: |^((?:Current t|T)hread 0x)\w+.*:\n(?:Current t|T)hread 0x\w+.*:$", re.MULTILINE)
_LEFT_OUT = re.compile(r"\[repeated \d+x across ")
_LABELLED = re.compile(rf"^(?P<label>\S[^\n]{{0,79}}?|[ ]+\d+: ){_HEAD}", re.MULTILINE)
_CLOCK = re.compile(r"\d:\d\d")
_BLANK = re.escape(" ")


def by_label(text: str) -> dict[Writer, str]:
    """Each writer's lines, where a file holds those of several; empty where it does not.

    >>> [owner.machine for owner in by_label("n1: Process 7: python a.py\\nn2: Process 8: python a.py\\nn1: Thread 7 (idle)\\n")]
    ['n1', 'n2']
    """
    if _PLAIN.search(text):
        return {}
    labels = {found["label"] for found in _LABELLED.finditer(text)}
    owners = {found[1]: found[0] for label in sorted(labels) if (found := read_writer(label)) is not None}
    if len(set(owners.values())) < 2 or any(read_writer(label) is None for label in labels):
        return {}
    begins = [(re.compile(f" *{pattern.strip().removesuffix(_BLANK)} ?"), owner) for pattern, owner in owners.items()]
    begins.sort(key=lambda item: len(item[0].pattern), reverse=True)
    lines: dict[Writer, list[str]] = {owner: [] for owner in owners.values()}
    for line in text.splitlines():
        for begin, owner in begins:
            if label := begin.match(line):
                lines[owner].append(line[label.end() :])
                break
    return {owner: "\n".join(own) for owner, own in lines.items()}


def without_labels(text: str) -> str:
    """The text without the label of its lines, which is seen from what stands before the first words of its threads.

    A label is the same everywhere, or holds a time, whose digits may differ.

    >>> without_labels("[rank3]: Thread 0x7f01 (most recent call first):\\n[rank3]:   File \\"a.py\\", line 3 in wait\\n")
    'Thread 0x7f01 (most recent call first):\\n  File "a.py", line 3 in wait\\n'
    """
    if _PLAIN.search(text):
        return text
    labels = {found["label"] for found in _LABELLED.finditer(text)}
    if len(labels) == 1 and not any(_CLOCK.search(label) for label in labels):
        pattern = re.escape(labels.pop())
    elif labels and len(forms := {re.sub(r"\d+", "0", label) for label in labels}) == 1 and all(_CLOCK.search(label) for label in labels):
        pattern = re.escape(forms.pop()).replace("0", r"\d+")
    else:
        return text
    return re.sub(rf"^(?:{pattern.removesuffix(chr(92) + ' ')} ?)", "", text, flags=re.MULTILINE)
