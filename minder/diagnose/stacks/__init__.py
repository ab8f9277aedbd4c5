"""Stack dumps of a hung or slow job: read, group, blame (docs/stacks.md)."""

from __future__ import annotations

from minder.diagnose.stacks.agree import analyse_captures, vote
from minder.diagnose.stacks.blame import analyse
from minder.diagnose.stacks.document import to_document, to_rows
from minder.diagnose.stacks.finding import Accused, Finding, Group
from minder.diagnose.stacks.live import capture_from_agents
from minder.diagnose.stacks.reader import find_job_file, place_ranks, read_captures
from minder.diagnose.stacks.records import Capture, Frame, Process, Thread
from minder.diagnose.stacks.rounds import judge_round
from minder.diagnose.stacks.sniff import read_dumps
from minder.diagnose.stacks.suspects import suspects_from_stacks

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
