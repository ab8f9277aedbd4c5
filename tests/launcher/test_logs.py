from __future__ import annotations

from pathlib import Path

from minder.edge.launcher.logs import LogFollower


def test_only_new_whole_lines_are_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("iter 1: loss 9.0\n")
    follower = LogFollower(log, 1 << 20)
    with log.open("a") as file:
        file.write("iter 2: loss 8.0\niter 3: lo")
    assert [(step.step, step.loss) for step in follower.read_steps()] == [(2, 8.0)]
    with log.open("a") as file:
        file.write("ss 7.0\nnothing here\n")
    assert [(step.step, step.loss) for step in follower.read_steps()] == [(3, 7.0)]


def test_a_long_log_is_turned_and_read_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    follower = LogFollower(log, limit_bytes=100)
    with log.open("ab", buffering=0) as writer:
        writer.write(b"x" * 150 + b"\n")
        assert follower.read_steps() == []
        assert (tmp_path / "log.1").stat().st_size == 151 and log.stat().st_size == 0
        writer.write(b"iter 4: loss 6.0\n")
    assert [step.step for step in follower.read_steps()] == [4]


def test_a_log_that_is_not_there_yet_has_no_steps(tmp_path: Path) -> None:
    assert LogFollower(tmp_path / "later", 100).read_steps() == []


def test_a_sites_own_pattern_counts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    follower = LogFollower(log, 1 << 20, r"schritt=(?P<step>\d+) verlust=(?P<loss>[\d.]+)")
    log.write_text("schritt=12 verlust=3.5\n")
    assert [(step.step, step.loss) for step in follower.read_steps()] == [(12, 3.5)]


def test_a_bar_is_read_while_it_is_drawn_and_another_process_draws_its_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    follower = LogFollower(log, 1 << 20)
    with log.open("a") as file:
        file.write("\r 3%|3  | 349/400 [05:49<00:51, 1.00it/s]\r 3%|3  | 350/400 [05:50<00:50, 1.00it/s]\r")
    assert [step.step for step in follower.read_steps((17, 1))] == [349, 350]
    with log.open("a") as file:
        file.write("\r 3%|3  | 301/400 [00:01<01:40, 1.00it/s]\r")
    assert [step.step for step in follower.read_steps((18, 2))] == [301]
