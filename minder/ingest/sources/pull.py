"""The last minutes of a job out of a Prometheus, as a recording that everything else can read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.jobfile import RecordedJob
from minder.ingest.sources.mapping import MetricMapping
from minder.ingest.sources.prometheus import PrometheusOptions, PrometheusSource
from minder.ingest.sources.recorder import Recorder
from minder.model.errors import BadInputError

__all__ = ["pull_recording"]

_TIMEOUT_S = 60.0  # an hour of a thousand machines is a long answer


def pull_recording(
    options: PrometheusOptions, machines: MachineMap, mapping: MetricMapping, job: RecordedJob, folder: Path, span_s: tuple[float, float]
) -> Path:
    """Write what was scraped from span_s[0] to span_s[1] (now, unix seconds) into a new folder; returns it.

    Raises SourceError if the Prometheus does not answer, IdentityError if targets cannot be distinguished, BadInputError if it has no
    sample of these machines.
    """
    begin_s, now_s = span_s
    patient = replace(options, timeout_s=max(options.timeout_s, _TIMEOUT_S), longest_lookback_s=now_s - begin_s + 60.0)
    source = PrometheusSource(patient, replace(machines, known=job.machines), mapping, since_s=begin_s)
    try:
        samples = [sample for sample in source.collect(now_s) if sample.time_s >= begin_s]
    finally:
        source.close()
    if not samples:
        minutes = (now_s - begin_s) / 60.0
        raise BadInputError(
            f"{options.url} has no sample of {job.machines[0]} in the last {minutes:g} minutes: check the address, the label that names "
            "machines, and the mapping"
        )
    with Recorder(folder, job) as recorder:
        recorder.append_samples(samples)
    return folder
