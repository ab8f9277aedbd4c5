"""Telemetry around a fault as SVG: an accused machine's line against its peers' band. Made of text alone, so that a page can hold it.

A page styles the classes (`x-band`, `x-middle`, `x-line`, `x-mark`, `x-grid`); a file of its own carries its style, for light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape

from minder.model.metrics import find_metric
from minder.model.telemetry import ExcerptPanel, TelemetryExcerpt

__all__ = ["describe_panel", "describe_window", "draw_excerpt", "draw_panel", "draw_scores", "draw_window"]

_WIDTH, _HEIGHT = 640, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 12, 24, 30
_STYLE = (
    "svg{background:#fff;color:#14181d;font:13px system-ui,sans-serif}text{fill:currentColor}"
    ".x-band{fill:#0b4fa8;fill-opacity:.16;stroke:#0b4fa8}"
    ".x-middle{stroke:#0b4fa8}.x-line{stroke:#b3131f}.x-dot{fill:#b3131f}.x-mark{stroke:currentColor}.x-grid{stroke:#c3cbd3}"
    "@media(prefers-color-scheme:dark){svg{background:#11151a;color:#e8ecf0}.x-band{fill:#8ab8ff;fill-opacity:.22;stroke:#8ab8ff}.x-middle{stroke:#8ab8ff}"
    ".x-line{stroke:#ff7b72}.x-dot{fill:#ff7b72}.x-grid{stroke:#3a444f}}"
)
_STEPS_S = (1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0)
_Point = tuple[float, float]
_Place = Callable[[float], float]


def draw_excerpt(excerpt: TelemetryExcerpt) -> str:
    """One SVG file with all its metrics, one below the other."""
    panels = [_panel(excerpt, metric) for metric in excerpt.metrics]
    height = _HEIGHT + 24
    body = "".join(
        f'<g transform="translate(0 {number * height + 20})"><text x="{_LEFT}" y="-4">{escape(_title(excerpt, metric))}</text>{panel}</g>'
        for number, (metric, panel) in enumerate(zip(excerpt.metrics, panels, strict=True))
    )
    size = f'viewBox="0 0 {_WIDTH} {height * len(panels)}" width="{_WIDTH}" height="{height * len(panels)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><style>{_STYLE}</style>{body}</svg>\n'


def draw_panel(excerpt: TelemetryExcerpt, metric: str) -> str:
    """One metric as SVG without style, for a page that has it."""
    label = escape(f"{_title(excerpt, metric)}: {describe_panel(excerpt, metric)}", quote=True)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{_panel(excerpt, metric)}</svg>'


def draw_window(excerpt: TelemetryExcerpt, metric: str) -> str:
    """The same of a window that was chosen: times of day (UTC) instead of seconds from a fault."""
    label = escape(f"{_title(excerpt, metric)}: {describe_window(excerpt, metric)}", quote=True)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{_panel(excerpt, metric, of_day=True)}</svg>'


def draw_scores(machine: str, scores: Sequence[tuple[float, float]]) -> str:
    """A machine's score over time, beside the threshold (1)."""
    times, values = tuple(time_s for time_s, _ in scores), tuple(value for _, value in scores)
    ones = (1.0,) * len(times)
    excerpt = TelemetryExcerpt(machine, math.inf, math.inf, 0, times, {"score": ExcerptPanel(ones, ones, ones, values)})
    label = escape(f"score of {machine}: {max(values):.2f} at most, {values[-1]:.2f} at the end; the threshold is 1", quote=True)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{_panel(excerpt, "score", of_day=True)}</svg>'


def describe_window(excerpt: TelemetryExcerpt, metric: str) -> str:
    """The picture in words: averages over the window.

    >>> panel = ExcerptPanel((530.0, 530.0), (548.0, 547.0), (560.0, 560.0), (548.0, 131.0))
    >>> excerpt = TelemetryExcerpt("node-2", math.inf, math.inf, 7, (10.0, 20.0), {"gpu_power_draw_watts": panel})
    >>> describe_window(excerpt, "gpu_power_draw_watts")
    'node-2 had 340 W on average, 131 W at the end; its 7 peers had 530 W to 560 W (median 548 W)'
    """
    panel, unit = excerpt.metrics[metric], _unit(metric)
    every = [True] * len(excerpt.times)
    own, low, middle, high = (_average(values, every, True) for values in (panel.line, panel.low, panel.middle, panel.high))
    last = next((value for value in reversed(panel.line) if value is not None), None)
    said = f"{excerpt.machine} had " + (
        "no data" if own is None or last is None else f"{_short(own, unit)} on average, {_short(last, unit)} at the end"
    )
    if low is None or middle is None or high is None:
        return f"{said}; nothing is known of its peers then"
    return f"{said}; {_peers(excerpt.peers)} had {_short(low, unit)} to {_short(high, unit)} (median {_short(middle, unit)})"


def _peers(count: int) -> str:
    return "its only peer" if count == 1 else f"its {count} peers"


def describe_panel(excerpt: TelemetryExcerpt, metric: str) -> str:
    """The picture in words.

    >>> panel = ExcerptPanel((530.0, 530.0), (548.0, 547.0), (560.0, 560.0), (548.0, 131.0))
    >>> describe_panel(TelemetryExcerpt("node-2", 15.0, 18.0, 7, (10.0, 20.0), {"gpu_power_draw_watts": panel}), "gpu_power_draw_watts")
    'node-2 had 548 W before and 131 W after; its 7 peers had 530 W to 560 W (median 547 W)'
    """
    panel, unit = excerpt.metrics[metric], _unit(metric)
    after = [time_s >= excerpt.fault_s for time_s in excerpt.times]
    own = [_average(panel.line, after, wanted) for wanted in (False, True)]
    low, middle, high = (_average(values, after, True) for values in (panel.low, panel.middle, panel.high))
    before_words, after_words = ("no data" if value is None else _short(value, unit) for value in own)
    said = f"{excerpt.machine} had {before_words} before and {after_words} after"
    if low is None or middle is None or high is None:
        return f"{said}; nothing is known of its peers then"
    return f"{said}; {_peers(excerpt.peers)} had {_short(low, unit)} to {_short(high, unit)} (median {_short(middle, unit)})"


def _title(excerpt: TelemetryExcerpt, metric: str) -> str:
    return f"{metric.replace('_', ' ')} of {excerpt.machine}"


def _average(values: Sequence[float | None], after: Sequence[bool], wanted: bool) -> float | None:
    known = [value for value, is_after in zip(values, after, strict=True) if is_after is wanted and value is not None]
    return sum(known) / len(known) if known else None


def _panel(excerpt: TelemetryExcerpt, metric: str, of_day: bool = False) -> str:
    panel, times = excerpt.metrics[metric], excerpt.times
    low, high = _range(panel)
    begin_s, end_s = times[0], max(times[-1], times[0] + 1.0 if of_day else max(excerpt.verdict_s, times[0] + 1.0))

    def across(time_s: float) -> float:
        return round(_LEFT + (time_s - begin_s) / (end_s - begin_s) * (_WIDTH - _LEFT - _RIGHT), 1)

    def down(value: float) -> float:
        return round(_HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM), 1)

    def points(values: Sequence[float | None]) -> list[list[_Point]]:
        return _runs([None if value is None else (across(time_s), down(value)) for time_s, value in zip(times, values, strict=True)])

    marks = _hours(begin_s, end_s, across) if of_day else _marks(excerpt, begin_s, end_s, across)
    parts = [*_grid(low, high, metric, down), *marks]
    for upper, lower in zip(points(panel.high), points(panel.low), strict=False):
        parts.append(f'<polygon class="x-band" points="{_joined([*upper, *reversed(lower)])}"/>')
    parts += [f'<polyline class="x-middle" fill="none" stroke-width="1.5" points="{_joined(run)}"/>' for run in points(panel.middle)]
    for run in points(panel.line):
        parts.append(f'<polyline class="x-line" fill="none" stroke-width="3" points="{_joined(run)}"/>')
        parts += [f'<circle class="x-dot" cx="{x}" cy="{y}" r="2.6"/>' for x, y in run[:: max(1, len(run) // 12)]]
    return "".join(parts)


def _range(panel: ExcerptPanel) -> tuple[float, float]:
    """From zero where that wastes no more than half of the height."""
    known = [value for values in (panel.low, panel.high, panel.line) for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    low = 0.0 if 0.0 <= low < 0.5 * high or high <= low else low
    room = 0.08 * ((high - low) or abs(high) or 1.0)
    return (low if low == 0.0 else low - room), high + room


def _grid(low: float, high: float, metric: str, down: _Place) -> Iterator[str]:
    for value in _ticks(low, high):
        y = down(value)
        yield f'<line class="x-grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(_short(value, _unit(metric)))}</text>'


def _marks(excerpt: TelemetryExcerpt, begin_s: float, end_s: float, across: _Place) -> Iterator[str]:
    base = _HEIGHT - _BOTTOM
    for seconds in _ticks(begin_s - excerpt.fault_s, end_s - excerpt.fault_s, 6):
        x = across(excerpt.fault_s + seconds)
        yield f'<text x="{x}" y="{base + 18}" text-anchor="middle">{"0 s" if seconds == 0 else f"{seconds:+.0f} s"}</text>'
    shown = [item for item in (("fault", excerpt.fault_s, "6 4"), ("verdict", excerpt.verdict_s, "2 3")) if begin_s <= item[1] <= end_s]
    for number, (word, time_s, dash) in enumerate(shown):
        x = across(time_s)
        late = x > _WIDTH - _RIGHT - 60 and number > 0  # no room for the word behind it
        anchor = "end" if late or (number == 0 and len(shown) > 1) else "start"
        yield f'<line class="x-mark" stroke-dasharray="{dash}" x1="{x}" x2="{x}" y1="{_TOP - 8}" y2="{base}"/>'
        lower = late and x - across(shown[0][1]) < 60  # beside each other they do not fit, and lower the line may run through it
        yield f'<text x="{x + (-4 if anchor == "end" else 4)}" y="{_TOP + (8 if lower else -8)}" text-anchor="{anchor}">{word}</text>'


def _hours(begin_s: float, end_s: float, across: _Place) -> Iterator[str]:
    """Times of day at round minutes, five or six of them."""
    rough = (end_s - begin_s) / 5
    step = next((size for size in _STEPS_S if size >= rough), 86_400.0)
    form = "%H:%M:%S" if step < 60.0 else "%H:%M"
    for number in range(math.ceil(begin_s / step), math.floor(end_s / step) + 1):
        x = min(max(across(number * step), _LEFT + 16), _WIDTH - _RIGHT - 20)
        said = datetime.fromtimestamp(number * step, UTC).strftime(form)
        yield f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{said}</text>'


def _ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Round numbers between them, zero among them where it lies there."""
    rough = max(high - low, 1e-12) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1.0, 2.0, 5.0, 10.0) if size * factor >= rough * 0.999)
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _runs(points: Sequence[_Point | None]) -> list[list[_Point]]:
    """Stretches without a gap."""
    found: list[list[_Point]] = [[]]
    for point in points:
        if point is not None:
            found[-1].append(point)
        elif found[-1]:
            found.append([])
    return [run for run in found if run]


def _joined(points: Sequence[_Point]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def _unit(metric: str) -> str:
    entry = find_metric(metric)
    return "" if entry is None or entry.unit in ("1", "ratio") else entry.unit


def _short(value: float, unit: str) -> str:
    """Three digits, thousands by their prefix.

    >>> _short(2.1e10, "B/s"), _short(0.5, ""), _short(0.0, "W")
    ('21 GB/s', '0.5', '0 W')
    """
    scale, prefix = next(((size, sign) for size, sign in ((1e9, "G"), (1e6, "M"), (1e4, "k")) if abs(value) >= size), (1.0, ""))
    scale = 1e3 if prefix == "k" else scale
    return f"{value / scale:.3g}{' ' if prefix or unit else ''}{prefix}{unit}"
