"""What NCCL's RAS subsystem reports of a job (NCCL 2.24 and newer): its text, and its JSON (2.28.7 and newer). Pure.

Named are processes that did not answer, and per communicator and operation how far each rank has launched. A difference of counts alone
is no fault: collectives outrun the query. The text names the minority, whichever way it differs; it does not say which side is at fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["RasProcess", "RasReport", "read_ras"]


@dataclass(frozen=True, slots=True)
class RasProcess:
    """One process as RAS calls it. rank: of its communicator, None where the text names the process alone; host: an address."""

    pid: int
    host: str
    rank: int | None = None
    size: int | None = None  # of that communicator


@dataclass(frozen=True, slots=True)
class RasReport:
    """silent: processes that RAS lost or that gave no answer. behind: ranks with fewer launched operations than most of their communicator.
    ahead: the same with more. problems: the statuses that it printed; none for a job that it calls OK. timeouts: of its own queries."""

    silent: tuple[RasProcess, ...] = ()
    behind: tuple[RasProcess, ...] = ()
    ahead: tuple[RasProcess, ...] = ()
    problems: tuple[str, ...] = ()
    timeouts: int = 0


_NO_COMMA = re.compile(r'(?<=[\w"\]}])(\s*\n\s*")')  # NCCL 2.28.9 leaves one out where it says why a rank is missing
_ACCEPTED = re.compile(r"\A(?:\s*OK\s*\n)*\s*")  # its answer to SET FORMAT and the like


def read_ras(text: str) -> RasReport | None:
    """A report, JSON or text; None for anything else, such as an answer that was cut off before its first communicator."""
    text = _ACCEPTED.sub("", text)
    if text.startswith("{"):
        try:
            return _read_json(json.loads(_NO_COMMA.sub(r",\1", text)))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
    return _read_text(text) if "Group     Comms" in text or "No communicator data" in text else None


def _read_json(document: Mapping[str, Any]) -> RasReport:
    silent: list[RasProcess] = []
    behind: list[RasProcess] = []
    ahead: list[RasProcess] = []
    for communicator in document["communicators"]:
        size = int(communicator["size"])
        for item in communicator.get("missing_ranks", ()):
            if item["status"].get("unresponsive") or item["status"].get("considered_dead"):
                silent.append(_process(item, size))
        ranks = communicator["ranks"]
        for operation in {name for item in ranks for name in item["collective_counts"]}:
            counts = [int(item["collective_counts"].get(operation, 0)) for item in ranks]
            usual = _majority(counts)
            pairs = [(count, _process(item, size)) for count, item in zip(counts, ranks, strict=True)]
            behind += [process for count, process in pairs if usual is not None and count < usual]
            ahead += [process for count, process in pairs if usual is not None and count > usual]
    problems = [name for name, found in (("INCOMPLETE", silent), ("MISMATCH", [*behind, *ahead])) if found]
    timeouts = int(document.get("ras", {}).get("timeouts_count", 0))
    return RasReport(_once(silent), _once(behind), _once(ahead), tuple(problems), timeouts)


def _process(item: Mapping[str, Any], size: int) -> RasProcess:
    return RasProcess(int(item["pid"]), str(item["host"]), int(item["rank"]), size)


def _majority(counts: list[int]) -> int | None:
    """The value that more than half of them have."""
    best = max(set(counts), key=counts.count, default=None)
    return best if best is not None and 2 * counts.count(best) > len(counts) else None


_ROW = re.compile(r"^\s*(?P<group>\d+)\s+\d+\s+\d+\s+[\d-]+\s+(?P<size>\d+)\s+\d+\s+[A-Z]+\s+(?P<errors>[A-Z,]+)\s*$")
_TITLE = re.compile(r"^(?:#(?P<group>\d+)-\d+ \([0-9a-f]+\) )?(?P<problem>INCOMPLETE|DEAD|ERROR|MISMATCH|TIMEOUT)\s*$")
_LAUNCHED = re.compile(r"^\s*(?P<ranks>\d+) ranks? (?:have|has) launched up to operation (?P<count>\d+)")
_RANK = re.compile(r"^\s*Rank (?P<rank>\d+) -- GPU .* managed by process (?P<pid>\d+) on node (?P<host>\S+)")
_GONE = re.compile(r"^\s*Process (?P<pid>\d+) on node (?P<host>\S+) managing GPU")
_LATE = re.compile(r"Encountered (?P<count>\d+) communication timeout")


def _read_text(text: str) -> RasReport:
    """The list below counts names the ranks of the smaller group, which stands last."""
    sizes: dict[str, int] = {}
    found: dict[str, list[RasProcess]] = {"silent": [], "behind": [], "ahead": []}
    problems: list[str] = []
    problem, size, timeouts = "", None, 0
    launched: list[tuple[int, int]] = []
    for line in text.splitlines():
        if row := _ROW.match(line):
            sizes[row["group"]] = int(row["size"])
            problems += [name for name in row["errors"].split(",") if name != "OK"]
        elif title := _TITLE.match(line):
            problem, size, launched = title["problem"], sizes.get(title["group"] or ""), []
            problems.append(problem)
        elif count := _LAUNCHED.match(line):
            launched = [*launched, (int(count["ranks"]), int(count["count"]))]
        elif late := _LATE.search(line):
            timeouts = int(late["count"])
        elif (rank := _RANK.match(line)) or (gone := _GONE.match(line)):
            match = rank or gone
            assert match is not None
            process = RasProcess(int(match["pid"]), match["host"], int(rank["rank"]) if rank else None, size if rank else None)
            found[_side(problem, launched)].append(process)
    silent, behind, ahead = (_once(found[name]) for name in ("silent", "behind", "ahead"))
    return RasReport(silent, behind, ahead, tuple(dict.fromkeys(problems)), timeouts)


def _side(problem: str, launched: list[tuple[int, int]]) -> str:
    """Which list a named process belongs to."""
    if problem in ("INCOMPLETE", "DEAD"):
        return "silent"
    if len(launched) < 2:
        return "ahead"  # another status, or an error: it is named, and not behind
    most, least = max(launched), min(launched)
    return "behind" if least[1] < most[1] else "ahead"


def _once(processes: Iterable[RasProcess]) -> tuple[RasProcess, ...]:
    """Each once: a process that is named with its rank is not named without one as well."""
    found = tuple(dict.fromkeys(processes))
    ranked = {(item.pid, item.host) for item in found if item.rank is not None}
    return tuple(item for item in found if item.rank is not None or (item.pid, item.host) not in ranked)
