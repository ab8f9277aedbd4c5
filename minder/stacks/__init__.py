"""Stack dumps of a hung or slow job: read, group, blame (docs/stacks.md)."""

from __future__ import annotations

from minder.stacks.agree import analyse_captures, vote
from minder.stacks.blame import analyse
from minder.stacks.document import to_document, to_rows
from minder.stacks.finding import Accused, Finding, Group
from minder.stacks.live import capture_from_agents
from minder.stacks.reader import find_job_file, place_ranks, read_captures
from minder.stacks.records import Capture, Frame, Process, Thread
from minder.stacks.rounds import judge_round
from minder.stacks.sniff import read_dumps
from minder.stacks.suspects import suspects_from_stacks

__all__ = [
    "Accused",
    "Capture",
    "Finding",
    "Frame",
    "Group",
    "Process",
    "Thread",
    "analyse",
    "analyse_captures",
    "capture_from_agents",
    "find_job_file",
    "judge_round",
    "place_ranks",
    "read_captures",
    "read_dumps",
    "suspects_from_stacks",
    "to_document",
    "to_rows",
    "vote",
]
