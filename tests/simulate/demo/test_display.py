from __future__ import annotations

import io

from rich.console import Console

from minder.simulate.demo.display import Display, LiveDisplay, PlainDisplay, open_display
from minder.simulate.demo.feed import Feed
from minder.simulate.demo.screen import draw_screen, sparkline

MACHINE = {"role": "training", "agent_age_s": 0.3, "launcher_age_s": 0.1, "workers": ["running"], "step": 24, "score": 0.1}


def rows(**of_m2):  # type: ignore[no-untyped-def]
    machines = [{**MACHINE, "name": f"lab-86b2-m{i}"} for i in range(6)]
    machines[2].update(of_m2)
    return [*machines, {**MACHINE, "name": "lab-86b2-s0", "role": "standby", "workers": ["waiting"], "step": None, "score": None}]


def drawn(feed: Feed, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    console.print(draw_screen(feed, width))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_feed_reads_status_and_ledger_as_they_grow(story) -> None:  # type: ignore[no-untyped-def]
    feed = Feed(story.options)
    assert feed.update(story, "training") == []
    story.begin()
    story.say_status(generation=1, step=20, loss=2.5, machines=rows())
    assert [event.kind for event in feed.update(story, "training")] == ["job_registered", "generation_started"]
    story.say_status(step=21, loss=2.4)
    assert feed.update(story, "training") == []
    assert list(feed.losses) == [(20, 2.5), (21, 2.4)]
    assert feed.fault_s is None
    story.inject()
    story.recover(story.accuse())
    story.say_status(step=26, loss=None)
    assert len(feed.update(story, "fault injected")) == 11
    assert feed.fault_s == story.injected.time_s
    assert all("data" not in event.payload for event in feed.events), "captured evidence may be large and is not kept"
    feed.close()


def test_a_half_written_status_changes_nothing(story) -> None:  # type: ignore[no-untyped-def]
    feed = Feed(story.options)
    story.begin()
    story.say_status(step=20, generation=1)
    feed.update(story, "training")
    story.status_path.write_text('{"step": 2')
    feed.update(story, "training")
    assert feed.step == 20
    feed.close()


def test_the_screen_shows_machines_verdict_decision_and_timeline(told) -> None:  # type: ignore[no-untyped-def]
    feed = Feed(told.options)
    told.say_status(generation=2, step=30, loss=2.0, message="running", machines=rows(role="evicted", workers=["ended"], score=1.4))
    feed.update(told, "fault injected")
    text = drawn(feed)
    lines = text.splitlines()
    assert "hang in m2" in lines[0]
    assert "namespaces" in lines[0]
    evicted = next(line for line in lines if line.startswith("m2 "))
    assert "evicted" in evicted
    assert "1.4" in evicted
    assert "step 30 of 60" in text
    assert "generation 2" in text
    assert any("for" in line and "its training process has not run for 2.6 s" in line for line in lines)
    assert any("against" in line and "its agent still answers" in line for line in lines)
    assert "evict m2, s0 takes the place" in text
    assert [line.split("s  ")[1].split(":")[0] for line in lines[-7:]] == [
        "fault injected",
        "detected",
        "decided",
        "evidence captured",
        "evicted",
        "restarted",
        "first new step",
    ]
    feed.close()


def test_the_screen_fits_a_narrow_terminal_and_an_empty_feed(told) -> None:  # type: ignore[no-untyped-def]
    feed = Feed(told.options)
    assert "step 0 of 60" in drawn(feed)
    told.say_status(generation=1, step=1, machines=rows())
    feed.update(told, "training")
    assert all(len(line) <= 80 for line in drawn(feed, 80).splitlines())
    feed.close()


def test_a_pipe_gets_one_line_per_change(story) -> None:  # type: ignore[no-untyped-def]
    stream = io.StringIO()
    with PlainDisplay(Feed(story.options), stream) as display:
        story.begin()
        story.say_status(generation=0, step=None, message="waiting for the workers to reach the barrier", machines=rows())
        display.show(story, "training")
        display.show(story, "training")
        story.say_status(generation=1, step=20, loss=2.5, message="")
        for _ in range(3):
            display.show(story, "training")
        story.inject()
        story.recover(story.accuse("it \x1b[31mwrote\x1b[0m this"))
        display.show(story, "fault injected")
        display.show(story, "fault injected")
    lines = [line.split(" s  ", 1)[1] for line in stream.getvalue().splitlines()]
    assert len(lines) == len(set(lines)), "nothing is said twice"
    assert lines.count("waiting for the workers to reach the barrier") == 1
    assert "step 20 of 60, loss 2.500" in lines
    assert "fault injected: stopped processes [4711]" in lines
    assert any(line.startswith("m2 stands still: evict (high confidence)") for line in lines)
    assert any(line.startswith("m2 is barred") for line in lines)
    assert all(letter.isprintable() for line in lines for letter in line)


def test_what_a_machine_wrote_cannot_steer_the_terminal(story) -> None:  # type: ignore[no-untyped-def]
    feed = Feed(story.options)
    story.begin()
    story.inject()
    story.recover(story.accuse("\x1b[2J\x07 [bold]markup[/bold] \u202e"))
    story.say_status(step=3)
    feed.update(story, "fault injected")
    text = drawn(feed)
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert "[bold]markup[/bold]" in text
    feed.close()


def test_the_live_display_draws_and_leaves_the_last_picture(told) -> None:  # type: ignore[no-untyped-def]
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, height=60)
    told.say_status(generation=2, step=30, machines=rows(role="evicted"))
    with LiveDisplay(Feed(told.options), console) as display:
        display.show(told, "fault injected")
    assert "first new step" in stream.getvalue()


def test_a_pipe_gets_lines_and_json_in_a_pipe_gets_silence(story, capsys) -> None:  # type: ignore[no-untyped-def]
    assert isinstance(open_display(Feed(story.options), as_json=False), PlainDisplay)
    with open_display(Feed(story.options), as_json=True) as display:
        assert type(display) is Display
        display.say("starting")
        display.show(story, "training")
    assert capsys.readouterr() == ("", "")


def test_a_sparkline_is_low_where_the_values_are_low() -> None:
    assert sparkline([1.0] * 50, 10) == "▁" * 10
    assert sparkline([float(i) for i in range(80)], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([], 8) == ""
