"""Training steps from a job's log lines, for scripts that call no function of ours.

Known without being told: Megatron-LM, Hugging Face Trainer and accelerate (dict and progress lines), nanoGPT and its kin,
torchtitan, DeepSpeed, JSON lines. A site adds its own with a regular expression of named groups.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from minder.errors import BadInputError

__all__ = ["StepLine", "StepReader"]


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
_PROGRESS = re.compile(rf"(?P<step>\d+)/(?P<total>\d+) \[[\d:]+<[\d:?]+,\s*(?P<speed>{_NUMBER})\s*(?P<unit>it/s|s/it)")
_DICT = re.compile(r"\{.*\}")
_MEGATRON_LOSS = re.compile(rf"\|\s*(?:lm )?loss:\s*(?P<value>{_NUMBER})")
_GRAD_NORM = re.compile(rf"\b(?:grad[_ ]?norm|norm)['\"]?[:=\s]\s*['\"]?(?P<value>{_NUMBER})")
_MILLISECONDS = re.compile(rf"(?:elapsed time per iteration \(ms\)|\bdt)[:=]\s*(?P<value>{_NUMBER})")
_SECONDS = re.compile(rf"(?:iter time \(s\)|step[_ ]time(?: \(s\))?|sec/step)[:=]\s*(?P<value>{_NUMBER})")
_DICT_STEP = re.compile(r"['\"](?:global_step|step|iteration|iter)['\"]:\s*['\"]?(?P<value>\d+)")
_DICT_LOSS = re.compile(rf"['\"](?:loss|train_loss|train/loss)['\"]:\s*['\"]?(?P<value>{_NUMBER})")


class StepReader:
    """Reads the lines of one log in order; progress bars and loss lines of the same step are put together.

    pattern: a site's own regular expression with the named group `step`, and any of `loss`, `grad_norm`, `seconds`,
    `milliseconds`; then nothing else counts as a step. Raises BadInputError if it cannot be used.
    """

    def __init__(self, pattern: str | None = None) -> None:
        self._pattern = _compile(pattern) if pattern is not None else None
        self._progress: StepLine | None = None

    def read(self, line: str) -> StepLine | None:
        """The step in a line, or None. Split at carriage returns too: progress bars end their lines with one.

        >>> StepReader().read("iter 10: loss 4.1234, time 123.45ms, mfu 12.34%")
        StepLine(step=10, loss=4.1234, grad_norm=None, seconds=0.12345)
        """
        line = _ANSI.sub("", line).strip()
        if self._pattern is not None:
            match = self._pattern.search(line)
            return _from_groups(match, None) if match else None
        return self._known(line)

    def _known(self, line: str) -> StepLine | None:
        if match := _MEGATRON.search(line):
            milliseconds = _value(_MILLISECONDS, line)
            seconds = milliseconds / 1e3 if milliseconds is not None else None
            return StepLine(int(match["step"]), _value(_MEGATRON_LOSS, line), _value(_GRAD_NORM, line), seconds)
        if match := _NANOGPT.search(line):
            return _from_groups(match, None)
        if match := _PROGRESS.search(line):
            return self._from_progress(match)
        if _DICT.search(line):
            return self._from_dict(line)
        if (match := _TABLE.search(line)) and "val loss" not in line:  # nanoGPT prints its evaluations in this form
            return _from_groups(match, line)
        return None

    def _from_progress(self, match: re.Match[str]) -> StepLine | None:
        """A progress bar may be redrawn without a step in between, and evaluation draws one of its own (shorter) kind."""
        speed = float(match["speed"])
        seconds = speed if match["unit"] == "s/it" else 1.0 / speed if speed > 0 else None
        found = StepLine(int(match["step"]), seconds=seconds)
        if self._progress is not None and found.step <= self._progress.step:
            return None
        self._progress = found
        return found

    def _from_dict(self, line: str) -> StepLine | None:
        """Trainer's own lines carry no step: the progress bar's is theirs."""
        loss = _value(_DICT_LOSS, line)
        step = _value(_DICT_STEP, line)
        if loss is None or (step is None and self._progress is None):
            return None
        number = int(step) if step is not None else self._progress.step if self._progress is not None else 0
        seconds = self._progress.seconds if self._progress is not None and step is None else None
        return StepLine(number, loss, _value(_GRAD_NORM, line), seconds)


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
