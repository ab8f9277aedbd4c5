"""The card of a model: what it is, from which data, how good, and what it does not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minder.model.metrics import find_metric

__all__ = ["write_card"]


def write_card(title: str, training: Mapping[str, Any], ranges: Mapping[str, tuple[float, float]], report: dict[str, Any] | None) -> str:
    """Markdown. report: `minder evaluate` of the held-back recordings, None where nothing was labelled."""
    parts = [f"# {title}", "", "Names the faulty machine of a training job from its telemetry (`minder replay`, `minder watch`).", ""]
    parts += ["## Training", "", *(f"- {key.replace('_', ' ')}: {value}" for key, value in training.items()), ""]
    parts += ["## Evaluation", "", *_evaluation(report), ""]
    parts += [
        "## Range of its training data",
        "",
        "Live metrics outside it are reported as `drift`; verdicts are then less sure.",
        "",
    ]
    parts += ["| metric | from | to | unit |", "|---|---|---|---|", *(_range(name, bounds) for name, bounds in ranges.items()), ""]
    parts += [
        "## Limits",
        "",
        "Parameters and weights only: nothing in this folder is code. Kinds of faults, metrics and job shapes that the training data",
        "did not have are not covered by the figures above. Figures from simulated recordings speak of the simulator's clusters.",
        "",
    ]
    return "\n".join(parts)


def _evaluation(report: dict[str, Any] | None) -> list[str]:
    if report is None or not report["recordings"]:
        return ["Not evaluated: no recording was held back."]
    summary = report["summary"]
    lines = [
        f"{report['recordings']} held-back recordings, never trained on; 95 % bootstrap intervals.",
        "",
        "| | value | interval |",
        "|---|---|---|",
    ]
    for name, digits in (("precision", 3), ("recall", 3), ("f1", 3), ("median_delay_s", 1)):
        figure = summary[name]
        lines.append(
            f"| {name} | {_number(figure['value'], digits)} | {_number(figure['low'], digits)} to {_number(figure['high'], digits)} |"
        )
    return lines


def _range(name: str, bounds: tuple[float, float]) -> str:
    metric = find_metric(name)
    return f"| {name} | {bounds[0]:.4g} | {bounds[1]:.4g} | {metric.unit if metric is not None else ''} |"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
