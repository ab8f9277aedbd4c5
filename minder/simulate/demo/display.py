"""What a person sees while a demo runs: a live picture on a terminal, plain lines in a pipe, nothing beside JSON."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, RenderableType
from rich.live import Live

from minder.record.incidents import kinds
from minder.record.incidents.timeline import describe
from minder.simulate.demo.feed import Feed, Watched
from minder.simulate.demo.screen import clean, draw_screen

__all__ = ["Display", "LiveDisplay", "PlainDisplay", "open_display"]

_QUIET_KINDS = (kinds.INTENT, kinds.EVIDENCE, kinds.JOB_REGISTERED)
_STEPS_PER_LINE = 10


class Display:
    """Keeps the feed and shows nothing: what `--format json` uses in a pipe. A context manager."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.feed.close()

    def show(self, stage: Watched, message: str) -> None:
        """Called a few times a second while the stage stands."""
        self.feed.update(stage, message)

    def say(self, message: str) -> None:
        """What is going on while no stage stands."""
        self.feed.message = message
        self.feed.status = {**self.feed.status, "message": message, "phase": None}


class LiveDisplay(Display):
    """The whole picture, drawn again four times a second."""

    def __init__(self, feed: Feed, console: Console) -> None:
        super().__init__(feed)
        self._console = console
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=4, redirect_stdout=False, redirect_stderr=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()
        super().__exit__(kind, error, trace)

    def _draw(self) -> RenderableType:
        return draw_screen(self.feed, self._console.width)


class PlainDisplay(Display):
    """One line per change, without control characters."""

    def __init__(self, feed: Feed, stream: TextIO) -> None:
        super().__init__(feed)
        self._stream = stream
        self._said = ""
        self._step_said = 0

    def __enter__(self) -> Self:
        options = self.feed.options
        where = "" if options.fault in ("none", "exception") else f" in machine {options.machine}"
        self._line(f"fault {options.fault}{where}, seed {options.seed}, {options.total_steps} steps, files in {options.out}")
        return self

    def show(self, stage: Watched, message: str) -> None:
        feed = self.feed
        had_lab, had_fault = bool(feed.job), feed.fault_s is not None
        new = feed.update(stage, message)
        if not had_lab:
            self._line(f"lab {feed.job}: {feed.lab_mode}, telemetry from {feed.telemetry}")
        status_message = str(feed.status.get("message") or "")
        if not feed.status.get("generation") and status_message not in ("", self._said):
            self._said = status_message
            self._line(status_message)
        if feed.fault_s is not None and not had_fault:
            self._line(f"fault injected: {feed.fault_detail}")
        for event in new:
            if event.kind not in _QUIET_KINDS:
                self._line(feed.shortened(describe(event)))
        if feed.step is not None and feed.step >= self._step_said + _STEPS_PER_LINE:
            self._step_said = feed.step - feed.step % _STEPS_PER_LINE
            loss = f", loss {feed.losses[-1][1]:.3f}" if feed.losses else ""
            self._line(f"step {feed.step} of {feed.options.total_steps}{loss}")

    def say(self, message: str) -> None:
        super().say(message)
        self._said = message
        self._line(message)

    def _line(self, text: str) -> None:
        print(f"{self.feed.elapsed_s:7.1f} s  {clean(text)}", file=self._stream, flush=True)


def open_display(feed: Feed, as_json: bool) -> Display:
    """Live on a terminal, lines in a pipe. With JSON standard output is the document's alone: the same on standard error,
    and there only where it is watched."""
    stream = sys.stderr if as_json else sys.stdout
    console = Console(file=stream)
    if stream.isatty() and not console.is_dumb_terminal:
        return LiveDisplay(feed, console)
    return Display(feed) if as_json else PlainDisplay(feed, stream)
