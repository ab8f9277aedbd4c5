"""What a page tells its reader to type, and commands on the PATH that run this checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMALL_JOBS = """
title = "Short jobs of a few machines"
seed = 5
duration_s = [700, 700]
[job]
machines = [4, 6]
pipeline = [1]
[faults]
onset_s = [250, 300]
healthy_share = 0.3
[monitoring]
intervals_s = [10]
metrics = [12, 16]
"""
_FENCE = re.compile(r'^ *```(\w*)(?: title="([\w./-]+)")?')
_COMMENT = re.compile(r"\s+#\s.*")


@dataclass(frozen=True, slots=True)
class Block:
    """page: from the checkout's root. language: of a fence, "" if it names none; "indented" without a fence. line: where it begins."""

    page: str
    line: int
    language: str
    title: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Its lines without what is said about them, blank ones left out."""
        lines = [_COMMENT.sub("", line.strip()) for line in self.text.splitlines()]
        return [line for line in lines if line and not line.startswith("#")]


def _whole(lines: list[str]) -> str:
    return textwrap.dedent("\n".join([*lines, ""]))


def blocks(page: str) -> list[Block]:
    """Every fenced block of a page, and every indented one that is no list."""
    found: list[Block] = []
    fence: tuple[int, str, str] | None = None
    inner: list[str] = []
    begin, listed = 0, False
    for number, line in enumerate([*(ROOT / page).read_text(encoding="utf-8").splitlines(), ""], start=1):
        mark = _FENCE.match(line)
        listed = line.startswith("    ") and (listed or (not begin and line.lstrip().startswith("- ")))  # a list in a list is no block
        indented = fence is None and not mark and not listed and line.startswith("    ") and line.strip()
        if begin and not indented and line.strip():
            found.append(Block(page, begin, "indented", "", _whole(inner)))
        if indented and not begin:
            begin, inner = number, []
        elif not indented and line.strip():
            begin = 0
        if fence is not None and mark:
            found.append(Block(page, *fence, _whole(inner)))
            fence = None
        elif mark:
            fence, inner = (number, mark[1], mark[2] or ""), []
        else:
            inner.append(line)
    return found + ([Block(page, begin, "indented", "", _whole(inner))] if begin else [])


def typed(page: str) -> list[str]:
    """Each line of a page's indented blocks, without what is said about it, in the page's order."""
    lines = re.sub(r"^```.*?^```$", "", (ROOT / "docs" / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL).splitlines()
    return [_COMMENT.sub("", line.strip()) for line in lines if re.match(r"    \S", line)]


def tables(page: str) -> list[str]:
    return re.findall(r"^```toml[^\n]*\n(.*?)^```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def replaced(lines: list[str], words: Mapping[str, str]) -> list[str]:
    """What a test cannot type as it stands: the site's addresses and folders, and sizes that take an hour. Each word must be there."""
    for said, meant in words.items():
        assert any(said in line for line in lines), f"the page no longer says {said}"
        lines = [line.replace(said, meant) for line in lines]
    return lines


def environment() -> dict[str, str]:
    """In which `python` finds this checkout."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


class Shell:
    """A folder in which commands are typed. `commands` are Python modules that the PATH knows by their name."""

    def __init__(self, folder: Path, commands: tuple[str, ...], **variables: str) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        for name in commands:
            path = folder / "bin" / name
            path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {name} "$@"\n')
            path.chmod(0o755)
        here = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "MINDER_STATE_DIR": str(folder / "state")}
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
        self.variables = {**clean, **here, **variables}

    def type(self, line: str, status: tuple[int, ...] = (0,), limit_s: float = 600.0) -> str:
        """What it prints on both. Fails with all of it unless it ends with one of these."""
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self.variables, capture_output=True, text=True, check=False, timeout=limit_s
        )
        assert done.returncode in status, f"{line}\n{textwrap.indent(done.stdout[-3000:] + done.stderr[-3000:], '    ')}"
        return done.stdout + done.stderr

    def start(self, line: str) -> subprocess.Popen[str]:
        """In a session of its own: whoever starts it ends it, with all that it started."""
        return subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
