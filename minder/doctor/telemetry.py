"""The configured telemetry: does the Prometheus answer, and do its series become samples of every machine of the job?"""

from __future__ import annotations

import time
from collections.abc import Mapping

from minder.config import JobConfig
from minder.doctor.finding import Finding
from minder.doctor.foreign import look_at_clock, look_at_families
from minder.doctor.identity import families_of
from minder.doctor.series import Server
from minder.ingest.sources.mapping import load_mapping
from minder.ingest.sources.prometheus import PrometheusSource
from minder.model.errors import BadInputError, SourceError
from minder.model.metrics import find_metric
from minder.model.telemetry import Sample

__all__ = ["look_at_telemetry"]

_LOOK_BACK_S, _LATE_S = 120.0, 30.0


def look_at_telemetry(config: JobConfig) -> list[Finding]:
    """Nothing where the controller scrapes the agents itself: that they answer was looked at already."""
    telemetry = config.telemetry
    if telemetry.url is None or telemetry.source == "scrape":
        return []
    try:
        server = Server(telemetry.address, telemetry.selector, telemetry.access())
        offset_s = server.offset_s(time.time())
    except SourceError as error:
        return [Finding("prometheus", "missing", error.seen, error.mend)]
    found = [*_samples(config), look_at_clock(offset_s), Finding("prometheus", "ok", f"{telemetry.address} answers")]
    return sorted(found, key=lambda item: item.status != "missing")


def _samples(config: JobConfig) -> list[Finding]:
    telemetry = config.telemetry
    known = [machine.name for machine in config.machines]
    longest_s = max(_LOOK_BACK_S, 4.0 * telemetry.interval_s)
    now_s = time.time()
    options = telemetry.options(timeout_s=20.0, longest_lookback_s=longest_s)
    source = PrometheusSource(options, telemetry.identity(known), load_mapping(telemetry.mapping), since_s=now_s - longest_s)
    try:
        samples = [sample for sample in source.collect(now_s) if sample.values]
    except (SourceError, BadInputError) as error:
        return [Finding("telemetry", "missing", str(error), "mend telemetry.machine_label, join, machine_map or selector in job.toml")]
    finally:
        source.close()
    families = {name: families_of(metric for sample in samples if sample.machine == name for metric in sample.values) for name in known}
    heard = {name: found for name, found in families.items() if found}
    own = [sample for sample in samples if not all(metric.startswith("scrape_") for metric in sample.values)]  # not the server's word of it
    lines = [_machines(known, own), *([look_at_families(heard)] if heard else []), _metrics(samples)]
    return [*lines, *_late(own, now_s, telemetry.interval_s), *_unplaced(source.unplaced)]


def _machines(known: list[str], samples: list[Sample]) -> Finding:
    absent = sorted(set(known) - {sample.machine for sample in samples})
    if not absent:
        return Finding("telemetry", "ok", f"samples of all {len(known)} machines")
    seen = f"no samples of {len(absent)} of {len(known)} machines: {', '.join(absent[:5])}{' ...' if len(absent) > 5 else ''}"
    return Finding("telemetry", "missing", seen, "add their targets, with a label that gives the names of job.toml, or machine_map")


def _late(samples: list[Sample], now_s: float, interval_s: float) -> list[Finding]:
    """Samples whose newest stamp is old: the clock that stamped them is behind, or they are on their way for so long."""
    newest: dict[str, float] = {}
    for sample in samples:
        newest[sample.machine] = max(sample.time_s, newest.get(sample.machine, sample.time_s))
    late = {machine: now_s - time_s for machine, time_s in newest.items() if now_s - time_s > max(_LATE_S, 2.5 * interval_s)}
    if not late:
        return []
    shown = ", ".join(f"{machine} ({age_s:.0f} s)" for machine, age_s in sorted(late.items())[:5])
    seen = f"the newest samples of {len(late)} of {len(newest)} machines are old: {shown}; minder reads them late"
    return [Finding("stamps", "missing", seen, "set the clocks of these machines: their exporter stamps its samples itself (chrony)")]


def _unplaced(unplaced: Mapping[str, int]) -> list[Finding]:
    if not unplaced:
        return []
    seen = f"{sum(unplaced.values())} series are left out, no label gives their machine: {', '.join(sorted(unplaced)[:3])}"
    return [Finding("left out", "note", seen, "give them the label, add telemetry.join or machine_map, or narrow telemetry.selector")]


def _metrics(samples: list[Sample]) -> Finding:
    names = sorted({name for sample in samples for name in sample.values})
    shared = [name for name in names if (metric := find_metric(name)) is not None and metric.synchronous]
    if shared or any(name.startswith(("job_", "steps", "step_")) for name in names):
        return Finding("metrics", "ok", f"{len(names)}: {', '.join(names)}")
    mend = "add the DCGM exporter or the agent to telemetry.mapping (`minder doctor --prometheus URL` proposes one)"
    return Finding("metrics", "missing", f"none that moves with the training step; only {', '.join(names) or 'none at all'}", mend)
