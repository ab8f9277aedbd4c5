"""Training steps from a job's log lines, for scripts that call no function of ours.

Known without being told: Megatron-LM, Hugging Face Trainer and accelerate (dict and progress lines), nanoGPT and its kin,
torchtitan, DeepSpeed, JSON lines. A site adds its own with a regular expression of named groups.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from minder.errors import BadInputError

__all__ = ["StepLine", "StepReader", "split_lines"]


@dataclass(frozen=True, slots=True)
class StepLine:
    """What one line says of one step; None where it does not. A loss that the line gives as nan is NaN, not None."""

    step: int
    loss: float | None = None
    grad_norm: float | None = None
    seconds: float | None = None


_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|[nN]a[nN]|inf)"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_MEGATRON = re.compile(r"\biteration\s+(?P<step>\d+)\s*/\s*\d+\s*\|")
_NANOGPT = re.compile(rf"^iter (?P<step>\d+): loss (?P<loss>{_NUMBER})(?:, time (?P<milliseconds>{_NUMBER})ms)?")
_TABLE = re.compile(rf"\bsteps?:?\s+(?P<step>\d+)(?:\s*/\s*\d+)?[\s|,:]+(?:train[_ ])?loss[:=\s]\s*(?P<loss>{_NUMBER})", re.IGNORECASE)
_PROGRESS = re.compile(rf"(?P<step>\d+)/(?P<total>\d+) \[(?P<elapsed>[\d:]+)<[\d:?]+,\s*(?P<speed>{_NUMBER})\s*(?P<unit>it/s|s/it)")
_MOST_BARS = 64
_DICT = re.compile(r"\{.*\}")
_MEGATRON_LOSS = re.compile(rf"\|\s*(?:lm )?loss:\s*(?P<value>{_NUMBER})")
_GRAD_NORM = re.compile(rf"\b(?:grad[_ ]?norm|norm)['\"]?[:=\s]\s*['\"]?(?P<value>{_NUMBER})")
_MILLISECONDS = re.compile(rf"(?:elapsed time per iteration \(ms\)|\bdt)[:=]\s*(?P<value>{_NUMBER})")
_SECONDS = re.compile(rf"(?:iter time \(s\)|step[_ ]time(?: \(s\))?|sec/step)[:=]\s*(?P<value>{_NUMBER})")
_DICT_STEP = re.compile(r"['\"](?:global_step|step|iteration|iter)['\"]:\s*['\"]?(?P<value>\d+)")
_DICT_LOSS = re.compile(rf"['\"](?:loss|train_loss|train/loss)['\"]:\s*['\"]?(?P<value>{_NUMBER})")


def split_lines(data: bytes) -> tuple[list[str], bytes]:
    """Whole lines, and the rest that still grows. A carriage return ends a line too: a progress bar writes no other end for hours.

    >>> split_lines(b"a\\r 3/9 \\r 4/9")
    (['a', ' 3/9 '], b' 4/9')
    """
    *lines, rest = data.replace(b"\r", b"\n").split(b"\n")
    return [line.decode(errors="replace") for line in lines], rest


class StepReader:
    """Reads the lines of one log in order; progress bars and loss lines of the same step are put together.

    Of progress bars alone nobody can tell which one is the training's (checkpoint shards, epochs, evaluations draw their own): the
    step is then how far all of them have come together, so that a job that works is never taken for one that stands.

    pattern: a site's own regular expression with the named group `step`, and any of `loss`, `grad_norm`, `seconds`,
    `milliseconds`; then nothing else counts as a step. Raises BadInputError if it cannot be used.
    """

    def __init__(self, pattern: str | None = None) -> None:
        self._pattern = _compile(pattern) if pattern is not None else None
        self.forget()

    def forget(self) -> None:
        """The job began anew: its bars and its numbers do too."""
        self._bars: dict[int, tuple[int, int]] = {}  # by their total: how far, after how many seconds
        self._counted = 0  # how far all bars have come
        self._told = 0  # the newest step, in a log that has bars
        self._speed_s: float | None = None
        self._numbered = 0  # the newest step that a line told by its number

    def read(self, line: str) -> StepLine | None:
        """The step in a line, or None. A line as `split_lines` makes them.

        >>> StepReader().read("iter 10: loss 4.1234, time 123.45ms, mfu 12.34%")
        StepLine(step=10, loss=4.1234, grad_norm=None, seconds=0.12345)
        """
        line = _ANSI.sub("", line).strip()
        if self._pattern is not None:
            match = self._pattern.search(line)
            return _from_groups(match, None) if match else None
        if match := _PROGRESS.search(line):
            return self._from_progress(match)
        found = _numbered(line)
        return self._from_dict(line) if found is None and _DICT.search(line) else self._beside_bars(found)

    def _from_progress(self, match: re.Match[str]) -> StepLine | None:
        """What this bar has gained since it was drawn last; a bar may be redrawn without a step, or by another rank that is behind."""
        shown, total, elapsed_s = int(match["step"]), int(match["total"]), _clock_s(match["elapsed"])
        before, before_s = self._bars.get(total, (0, 0))
        if shown < before and (before >= total or 2 * elapsed_s < before_s):
            before = 0  # the next epoch, or the next evaluation
        if shown <= before or (len(self._bars) >= _MOST_BARS and total not in self._bars):
            return None
        self._bars[total] = shown, elapsed_s
        self._counted += shown - before
        if self._counted <= self._told:
            return None
        speed = float(match["speed"])
        self._speed_s = speed if match["unit"] == "s/it" else 1.0 / speed if speed > 0 else None
        self._told = self._counted
        return StepLine(self._told, seconds=self._speed_s)

    def _from_dict(self, line: str) -> StepLine | None:
        """Trainer's own lines carry no step: the progress bar's is theirs."""
        loss, step = _value(_DICT_LOSS, line), _value(_DICT_STEP, line)
        grad_norm = _value(_GRAD_NORM, line)
        if loss is None or (step is None and not self._bars):
            return None
        if step is not None:
            return self._beside_bars(StepLine(int(step), loss, grad_norm))
        return StepLine(self._told, loss, grad_norm, self._speed_s)

    def _beside_bars(self, found: StepLine | None) -> StepLine | None:
        """A step told by its number. Where bars have counted farther, that count goes on: a step that falls is a job that began again."""
        if found is None:
            return None
        if found.step < self._numbered:
            self.forget()
        self._numbered = found.step
        if not self._bars:
            return found
        self._told = max(self._told, found.step)
        return replace(found, step=self._told)


def _numbered(line: str) -> StepLine | None:
    if match := _MEGATRON.search(line):
        milliseconds = _value(_MILLISECONDS, line)
        seconds = milliseconds / 1e3 if milliseconds is not None else None
        return StepLine(int(match["step"]), _value(_MEGATRON_LOSS, line), _value(_GRAD_NORM, line), seconds)
    if match := _NANOGPT.search(line):
        return _from_groups(match, None)
    if (match := _TABLE.search(line)) and "val loss" not in line:  # nanoGPT prints its evaluations in this form
        return _from_groups(match, line)
    return None


def _clock_s(text: str) -> int:
    """
    >>> _clock_s("1:02:03")
    3723
    """
    seconds = 0
    for part in text.split(":"):
        seconds = 60 * seconds + int(part or 0)
    return seconds


def _value(pattern: re.Pattern[str], line: str) -> float | None:
    match = pattern.search(line)
    return float(match["value"]) if match else None


def _from_groups(match: re.Match[str], line: str | None) -> StepLine | None:
    """Named groups first; what a table line holds beside them is searched for in `line`."""
    groups = match.groupdict()
    step = groups.get("step") or ""
    if not step.isdigit():
        return None
    numbers = {name: _float(groups.get(name)) for name in ("loss", "grad_norm", "seconds", "milliseconds")}
    grad_norm, seconds, milliseconds = numbers["grad_norm"], numbers["seconds"], numbers["milliseconds"]
    if line is not None:
        grad_norm, seconds, milliseconds = _value(_GRAD_NORM, line), _value(_SECONDS, line), _value(_MILLISECONDS, line)
    if seconds is None and milliseconds is not None:
        seconds = milliseconds / 1e3
    return StepLine(int(step), numbers["loss"], grad_norm, seconds if seconds is None or math.isfinite(seconds) else None)


def _float(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise BadInputError(f"step pattern {pattern!r} is no regular expression: {error}") from error
    if "step" not in compiled.groupindex:
        raise BadInputError(f"step pattern {pattern!r} has no group named step: write one, such as (?P<step>\\d+)")
    return compiled
