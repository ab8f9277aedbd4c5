"""Stack dumps of a hung or slow job: read, group, blame (docs/stacks.md)."""

from __future__ import annotations

from minder.diagnose.stacks.blame import analyse, analyse_captures, judge_round, vote
from minder.diagnose.stacks.finding import Accused, Finding, Group, suspects_from_stacks, to_document, to_rows
from minder.diagnose.stacks.reader import capture_from_agents, find_job_file, place_ranks, read_captures
from minder.diagnose.stacks.records import Capture, Frame, Process, Thread
from minder.diagnose.stacks.sniff import read_dumps

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
