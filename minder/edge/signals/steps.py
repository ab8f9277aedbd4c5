"""Training steps from a job's log lines, for scripts that call no function of ours.

What the usual trainers print is data: step_rules.toml for lines with a number, bars.py for progress bars, and dictionaries or JSON
here. A site adds its own with a regular expression of named groups (`--step-pattern`).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from minder.edge.signals.bars import Bar, Bars, read_bar
from minder.edge.signals.log_prefix import strip_prefix
from minder.edge.signals.numerals import COUNT, parse_count, parse_value
from minder.edge.signals.step_counter import StepCounter
from minder.edge.signals.step_rules import load_step_rules
from minder.model.errors import BadInputError

__all__ = ["StepLine", "StepReader", "check_step_pattern", "split_lines"]


@dataclass(frozen=True, slots=True)
class StepLine:
    """What one line says of one step; None where it does not. A loss that the line gives as nan is NaN, not None."""

    step: int
    loss: float | None = None
    grad_norm: float | None = None
    seconds: float | None = None


_DICT = re.compile(r"\{.*\}")
_DICT_STEP = re.compile(
    r"['\"](?:trainer/|train/|train_)?(?:global_?step(?:/max_steps)?|_?step|iteration|iter|num_updates|current_steps)['\"]:\s*"
    rf"['\"]?(?P<value>{COUNT})",
)
_DICT_LOSS = re.compile(r"['\"](?:loss|train_loss|train/loss)['\"]:\s*['\"]?(?P<value>[^'\"\s}]+)")
_DICT_OTHER = re.compile(r"['\"](?:eval|valid|val|test|train_runtime)(?:[_/][^'\"]*)?['\"]:")
_DETAIL_LINES = 100  # so many lines after a step its measures may stand


_LONGEST_LINE = 16384
_RESTART_S = 3.0  # no restart is quicker: the new processes have to come up
_USUAL_GAP_S = 10.0  # between two looks with a newer step, before there were two
_LATE_LINES = 200  # so many lines may come late: standard output is buffered, a bar's standard error is not


def split_lines(data: bytes) -> tuple[list[str], bytes]:
    """Whole lines, and the rest that still grows. A carriage return ends a line too: a progress bar writes no other end for hours.

    >>> split_lines(b"a\\r 3/9 \\r 4/9")
    (['a', ' 3/9 '], b' 4/9')
    """
    *lines, rest = data.replace(b"\r", b"\n").split(b"\n")
    return [line.decode(errors="replace") for line in lines], rest


class StepReader:
    """Reads the lines of one log in order; progress bars and loss lines of the same step are put together.

    pattern: a site's own regular expression with the named group `step`, and any of `loss`, `grad_norm`, `seconds`,
    `milliseconds`; then nothing else counts as a step. Raises BadInputError if it cannot be used.
    """

    def __init__(self, pattern: str | None = None) -> None:
        self._pattern = check_step_pattern(pattern) if pattern is not None else None
        self._rules = load_step_rules()
        self.unnumbered = 0  # lines of a trainer that tell of training and carry no step
        self._line_source, self._now_s = "", math.nan  # of the line that is read now
        self.forget()

    def forget(self) -> None:
        """The job began anew: its bars and its numbers do too."""
        self._bars = Bars()
        self._counters: dict[tuple[str, str], StepCounter] = {}  # each rank prints numbers of its own, sooner or later than others
        self._source: str | None = None  # whose lines count, where several ranks print into one log
        self._heir: tuple[str, int] | None = None  # another source, and its step since the one that counts is silent
        self._newest: int | None = None
        self._newer_s = math.nan  # when a newer step was read last
        self._gap_s = _USUAL_GAP_S
        self._offset = 0  # of the numbers, where a bar that was not the training's had counted farther
        self._has_numbers = self._bars_agree = False
        self._since_bar = _LATE_LINES  # lines with a number since a bar had the newest step
        self._since_step = _DETAIL_LINES

    def read(self, line: str, now_s: float = math.nan) -> StepLine | None:
        """The step in a line, or None. A line as `split_lines` makes them. now_s: when it was read, in seconds, where that is known: then
        a number that falls too soon for a restart is another rank's.

        >>> StepReader().read("iter 10: loss 4.1234, time 123.45ms, mfu 12.34%")
        StepLine(step=10, loss=4.1234, grad_norm=None, seconds=0.12345)
        """
        source, line = strip_prefix(line[:_LONGEST_LINE])
        self._line_source, self._now_s = source, now_s
        found = self._read(line) if self._pattern is None else self._from_pattern(self._pattern, line)
        if found is None:
            return self._read_detail(line) if self._pattern is None else None
        if (
            self._source not in (None, source)
            and self._newest is not None
            and found.step <= self._newest
            and not self._inherits(found.step)
        ):
            return None  # another rank says the same
        if self._newest is None or found.step > self._newest:
            self._note_newer(now_s)
        self._source, self._newest, self._since_step, self._heir = source, found.step, 0, None
        return found

    def _inherits(self, step: int) -> bool:
        """Whether the line's source counts on its own while the one that counted is silent: that process is no more, and the job began
        again in others."""
        if not self._is_silent:
            self._heir = None
            return False
        heir, self._heir = self._heir, (self._line_source, step)
        return heir is not None and heir[0] == self._line_source and step > heir[1]

    @property
    def _is_silent(self) -> bool:
        """Whether there was no newer step for longer than ranks of one job lie apart. False where times are not known."""
        return self._now_s - self._newer_s > self._apart_s

    @property
    def _apart_s(self) -> float:
        """So long after the newest step another rank may still print an older one."""
        return _RESTART_S + 2.0 * self._gap_s

    def _note_newer(self, now_s: float) -> None:
        if now_s > self._newer_s:
            self._gap_s = now_s - self._newer_s
        self._newer_s = now_s

    def _from_pattern(self, pattern: re.Pattern[str], line: str) -> StepLine | None:
        """A number that falls too soon for a restart is another rank's, printed late."""
        match = pattern.search(line)
        found = _from_groups(match) if match else None
        is_soon = self._now_s - self._newer_s <= self._apart_s
        return None if found is not None and is_soon and found.step < (self._newest or 0) else found

    def _read(self, line: str) -> StepLine | None:
        bar = read_bar(line, self._rules)
        if bar is not None:
            return self._from_bar(bar)
        if _DICT.search(line) and (_DICT_LOSS.search(line) or _DICT_STEP.search(line)):
            return self._from_dict(line)
        return self._from_rule(line)

    def _from_bar(self, bar: Bar) -> StepLine | None:
        """In a log whose lines have numbers, a bar without a description counts only if it went along with them."""
        step = self._bars.read(bar)
        if step is None or step <= (self._newest or 0):
            return None
        if bar.kind == "unnamed" and self._has_numbers and not self._bars_agree:
            return None
        self._since_bar = 0
        return StepLine(step, seconds=self._bars.seconds)

    def _from_rule(self, line: str) -> StepLine | None:
        found = self._rules.find(line)
        if found is None:
            return None
        rule, match = found
        groups = match.groupdict()
        number, total = (parse_count(groups.get(name) or "", (groups.get(f"{name}_unit") or "").upper()) for name in ("step", "total"))
        epoch = parse_count(groups.get("epoch") or "")
        if number is None:
            return None
        by_epoch = {"job": False, "epoch": True, "unknown": None}[rule.counter]
        step = self._count(rule.trainer, number, total, epoch, rule.epoch_base, by_epoch)
        if step is None:
            return None
        loss, grad_norm, seconds, milliseconds = (
            self._rules.value(name, line, match) for name in ("loss", "grad_norm", "seconds", "milliseconds")
        )
        if seconds is None and milliseconds is not None:
            seconds = milliseconds / 1e3
        return StepLine(step, loss, grad_norm, seconds if seconds is not None and math.isfinite(seconds) else None)

    def _from_dict(self, line: str) -> StepLine | None:
        """A Trainer's own dictionaries carry no step: the progress bar's is theirs, and without a bar it is unknown."""
        loss, step = _DICT_LOSS.search(line), _DICT_STEP.search(line)
        if loss is None and (step is None or _DICT_OTHER.search(line)):
            return None
        if loss is not None and step is None and _DICT_OTHER.search(line):
            return None
        value = parse_value(loss["value"]) if loss is not None else None
        grad_norm = self._rules.value("grad_norm", line)
        if step is None:
            step_of_bar = self._bars.newest_step
            self.unnumbered += step_of_bar is None
            return None if step_of_bar is None else StepLine(step_of_bar, value, grad_norm, self._bars.seconds)
        number = parse_count(step["value"])
        counted = None if number is None else self._count("dictionary", number, by_epoch=False)
        return None if counted is None else StepLine(counted, value, grad_norm)

    def _read_detail(self, line: str) -> StepLine | None:
        """The loss of the step of a line above."""
        self._since_step += 1
        if self._newest is None or self._since_step > _DETAIL_LINES:
            return None
        for pattern in self._rules.details:
            if match := pattern.search(line):
                return StepLine(self._newest, parse_value(match["loss"]))
        return None

    def _count(
        self,
        kind: str,
        number: int,
        total: int | None = None,
        epoch: int | None = None,
        epoch_base: int | None = None,
        by_epoch: bool | None = None,
    ) -> int | None:
        key = (self._line_source, kind)
        counter = self._counters.setdefault(key, StepCounter())
        is_soon = self._now_s - self._newer_s <= self._apart_s
        step = counter.count(number, total, epoch, epoch_base, by_epoch, may_begin_again=not is_soon)
        if counter.began_again:  # from a checkpoint: bars and the other kinds of lines begin anew with it
            self.forget()
            self._counters = {key: counter}
        return None if step is None else self._beside_bars(step, max(2, counter.stride))

    def _beside_bars(self, number: int, near: int) -> int | None:
        """A number that is behind the bars was printed late, unless the bars have stopped: then they were none of the training's."""
        at = self._bars.open_at
        self._since_bar += 1
        step = number + self._offset
        if self._newest is not None and step < self._newest and self._bars.newest_step is not None:
            if at is not None and self._since_bar < _LATE_LINES:
                return None
            self._offset += self._newest + 1 - step
            step = self._newest + 1
        self._has_numbers, self._bars_agree = True, at is not None and abs(at - number) <= near
        return step


def _from_groups(match: re.Match[str]) -> StepLine | None:
    """A site's own groups."""
    groups = match.groupdict()
    step = parse_count(groups.get("step") or "")
    if step is None:
        return None
    loss, grad_norm, seconds, milliseconds = (
        parse_value(groups.get(name) or "") for name in ("loss", "grad_norm", "seconds", "milliseconds")
    )
    if seconds is None and milliseconds is not None:
        seconds = milliseconds / 1e3
    return StepLine(step, loss, grad_norm, seconds if seconds is not None and math.isfinite(seconds) else None)


def check_step_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a site's own pattern. Raises BadInputError if it cannot be used."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise BadInputError(f"step pattern {pattern!r} is no regular expression: {error}") from error
    if "step" not in compiled.groupindex:
        raise BadInputError(f"step pattern {pattern!r} has no group named step: write one, such as (?P<step>\\d+)")
    return compiled
