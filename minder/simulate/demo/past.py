"""A Prometheus with a past: a recording as NVIDIA's DCGM exporter and node_exporter would have exposed it, ending now.

For trying out what reads a site's Prometheus where no site is at hand. Needs Debian's `prometheus`, which brings `promtool`.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from minder.ingest.sources.mapping import MetricMapping, Rule, load_mapping
from minder.ingest.sources.recording import Recording
from minder.model.errors import LabError
from minder.model.private import make_private
from minder.simulate.demo.prometheus import LabPrometheus

__all__ = ["prometheus_with_past", "write_openmetrics"]

_IMPORT_LIMIT_S = 120.0


@contextmanager
def prometheus_with_past(recording: Recording, folder: Path, now_s: float, mapping: str = "dcgm") -> Iterator[str]:
    """A running Prometheus on loopback that holds the recording; gives its URL. Raises LabError without promtool."""
    tool = shutil.which("promtool")
    if tool is None:
        raise LabError("promtool is not on the PATH: install prometheus, or give the URL of one that runs")
    make_private(folder)
    text = folder / "past.om"
    write_openmetrics(recording, text, now_s, load_mapping(mapping))
    command = [tool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_IMPORT_LIMIT_S)
    if answer.returncode:
        raise LabError(f"promtool could not import {text}: {' '.join(answer.stderr.split())[:300]}")
    with LabPrometheus(folder, {}, "", recording.interval_s) as prometheus:
        yield prometheus.url


def write_openmetrics(recording: Recording, path: Path, now_s: float, mapping: MetricMapping) -> None:
    """Every sample under the name that the mapping reads it from, in the exporter's unit, its time moved so that the newest is `now_s`.

    Metrics that the mapping has no plain gauge for are left out: a counter's past does not follow from its growth.
    """
    frames = recording.frames
    rules = _gauges(mapping)
    shift_s = now_s - float(frames.times_N.max())
    lines: list[str] = []
    for column, metric in enumerate(frames.metrics):
        rule = rules.get(metric)
        if rule is None:
            continue
        name = rule.series[0]
        lines.append(f"# TYPE {name} gauge")
        device = "" if rule.device is None else f',{rule.device}="0"'
        values_N = frames.values_NK[:, column]
        for row in np.lexsort((frames.times_N, frames.machine_N)):
            if np.isfinite(values_N[row]):
                labels = f'Hostname="{frames.machines[frames.machine_N[row]]}",instance="10.0.0.{frames.machine_N[row]}:9400"{device}'
                lines.append(f"{name}{{{labels}}} {values_N[row] / rule.scale:.10g} {frames.times_N[row] + shift_s:.3f}")
    path.write_text("\n".join(lines) + "\n# EOF\n", encoding="utf-8")


def _gauges(mapping: MetricMapping) -> dict[str, Rule]:
    """Metric to the first rule that reads it from one gauge with a name of its own."""
    found: dict[str, Rule] = {}
    for rule in mapping.all_rules():
        plain = rule.kind == "gauge" and not rule.over and not rule.complement and not rule.match and rule.series[0].isidentifier()
        if plain:
            found.setdefault(rule.metric, rule)
    return found
