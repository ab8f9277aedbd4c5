"""The workers' output on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from minder.edge.launcher.tail import OutputTail


def shown(paths: dict[str, Path], act: Callable[[list[str]], None]) -> list[str]:
    lines: list[str] = []
    with OutputTail(paths, lines.append):
        act(lines)
    return lines


def until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_new_lines_of_every_rank_come_with_its_prefix(tmp_path: Path) -> None:
    paths = {"[rank 0] ": tmp_path / "0", "[rank 1] ": tmp_path / "1"}
    paths["[rank 0] "].write_text("an earlier run\n")

    def act(lines: list[str]) -> None:
        with paths["[rank 0] "].open("a") as file:
            file.write("one\ntwo\n")
        until(lambda: len(lines) == 2)
        paths["[rank 1] "].write_text("from one\n")

    assert shown(paths, act) == ["[rank 0] one", "[rank 0] two", "[rank 1] from one"]


def test_the_last_words_without_a_line_end_are_shown_too(tmp_path: Path) -> None:
    assert shown({"": tmp_path / "0"}, lambda lines: (tmp_path / "0").write_text("half a li") and None) == ["half a li"]


def test_of_a_progress_bar_only_the_last_state_is_shown(tmp_path: Path) -> None:
    assert shown({"": tmp_path / "0"}, lambda lines: (tmp_path / "0").write_text("\r10%\r50%\r100%\n\n") and None) == ["100%", ""]


def test_a_log_that_its_launcher_emptied_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "0"

    def act(lines: list[str]) -> None:
        path.write_text("a long line of the old content\n")
        until(lambda: lines)
        path.write_text("new\n")
        until(lambda: len(lines) == 2)

    assert shown({"": path}, act)[-1] == "new"


def test_a_reader_that_went_away_ends_the_showing_and_nothing_else(tmp_path: Path) -> None:
    def refuse(line: str) -> None:
        raise BrokenPipeError

    with OutputTail({"": tmp_path / "0"}, refuse) as tail:
        (tmp_path / "0").write_text("line\n")
        until(lambda: not tail._thread.is_alive())
