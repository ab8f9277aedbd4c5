"""Does a batch script start its own ranks again? Then Slurm's requeue would be a second owner of retries (docs/adr/0014).

The rules: a launcher that is given restarts of its own (`--max-restarts 3`), a `while` or `until` loop around the start of ranks, a `for`
loop around it that ends with its first success, and a script that requeues its own job. A `for` loop over seeds is none of these.
"""

from __future__ import annotations

import re

__all__ = ["find_retries"]

_GIVEN = re.compile(r"--max[-_]restarts(?:=|\s+)(\S+)")
_STARTS = re.compile(r"\b(srun|torchrun|accelerate|deepspeed|mpirun|mpiexec|python[0-9.]*)\b")
_OPENS, _CLOSES = re.compile(r"(?:^|[;&|]\s*)\s*(while|until|for)\b"), re.compile(r"(?:^|;)\s*done\b")
_REQUEUES = re.compile(r"\bscontrol\s+requeue\b")


def find_retries(script: str) -> str:
    """One line that says what starts the ranks again; "" if nothing does.

    >>> find_retries("#!/bin/sh\\nsrun torchrun --max-restarts=3 train.py")
    'its script gives its launcher --max-restarts 3'
    """
    lines = [_code(line) for line in script.replace("\\\n", " ").splitlines()]
    given = next((found.group(1) for line in lines if (found := _GIVEN.search(line)) and found.group(1).strip("\"'") != "0"), None)
    if given is not None:
        return f"its script gives its launcher --max-restarts {given}"
    if any(_REQUEUES.search(line) for line in lines):
        return "its script requeues its own job"
    return _find_loop(lines)


def _find_loop(lines: list[str]) -> str:
    open_loops: list[list[str]] = []
    for line in lines:
        opened = _OPENS.search(line)
        if opened:
            open_loops.append([opened.group(1)])
        for loop in open_loops:
            loop.append(line)
        if _CLOSES.search(line) and open_loops:
            kind, *body = open_loops.pop()
            starts = any(_STARTS.search(item) for item in body)
            if starts and (kind != "for" or any("break" in item for item in body)):
                return f"its script starts its ranks in a `{kind}` loop"
    return ""


def _code(line: str) -> str:
    """Without what is only a comment."""
    return "" if line.lstrip().startswith("#") else line
