"""The configured telemetry: does the Prometheus answer, and do its series become samples of every machine of the job?"""

from __future__ import annotations

import time

from minder.config import JobConfig
from minder.doctor.finding import Finding
from minder.doctor.foreign import look_at_clock
from minder.doctor.series import Server
from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.mapping import load_mapping
from minder.ingest.sources.prometheus import PrometheusOptions, PrometheusSource
from minder.model.errors import BadInputError, SourceError
from minder.model.metrics import find_metric
from minder.model.telemetry import Sample

__all__ = ["look_at_telemetry"]

_LOOK_BACK_S = 120.0


def look_at_telemetry(config: JobConfig) -> list[Finding]:
    """Nothing where the controller scrapes the agents itself: that they answer was looked at already."""
    telemetry = config.telemetry
    if telemetry.url is None or telemetry.source == "scrape":
        return []
    server = Server(telemetry.url, telemetry.selector, telemetry.headers)
    try:
        offset_s = server.now_s() - time.time()
    except SourceError as error:
        return [Finding("prometheus", "missing", str(error), "start it, mend telemetry.url, or open its port for this machine")]
    found = [Finding("prometheus", "ok", f"{telemetry.url} answers"), look_at_clock(offset_s)]
    return [*found, *_samples(config)]


def _samples(config: JobConfig) -> list[Finding]:
    telemetry = config.telemetry
    known = [machine.name for machine in config.machines]
    longest_s = max(_LOOK_BACK_S, 4.0 * telemetry.interval_s)
    options = PrometheusOptions(
        telemetry.url or "", telemetry.interval_s, telemetry.selector, telemetry.headers, 20.0, longest_lookback_s=longest_s
    )
    now_s = time.time()
    machines = MachineMap(telemetry.machine_label, machines=telemetry.machine_map, known=known)
    source = PrometheusSource(options, machines, load_mapping(telemetry.mapping), since_s=now_s - longest_s)
    try:
        samples = source.collect(now_s)
    except (SourceError, BadInputError) as error:
        return [Finding("telemetry", "missing", str(error), "mend telemetry.machine_label, machine_map or selector in job.toml")]
    finally:
        source.close()
    return [_machines(known, samples), _metrics(samples)]


def _machines(known: list[str], samples: list[Sample]) -> Finding:
    absent = sorted(set(known) - {sample.machine for sample in samples if sample.values})
    if not absent:
        return Finding("telemetry", "ok", f"samples of all {len(known)} machines")
    seen = f"no samples of {len(absent)} of {len(known)} machines: {', '.join(absent[:5])}{' ...' if len(absent) > 5 else ''}"
    return Finding("telemetry", "missing", seen, "add their targets, with a label that gives the names of job.toml, or machine_map")


def _metrics(samples: list[Sample]) -> Finding:
    names = sorted({name for sample in samples for name in sample.values})
    shared = [name for name in names if (metric := find_metric(name)) is not None and metric.synchronous]
    if shared or any(name.startswith(("job_", "steps", "step_")) for name in names):
        return Finding("metrics", "ok", f"{len(names)}: {', '.join(names)}")
    mend = "add the DCGM exporter or the agent to telemetry.mapping (`minder doctor --prometheus URL` proposes one)"
    return Finding("metrics", "missing", f"none that moves with the training step; only {', '.join(names) or 'none at all'}", mend)
