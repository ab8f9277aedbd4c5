"""What the service sees at the moment of a scrape: open incidents, and how old each controller's last status is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from minder import __version__
from minder.act.controller.reporting.status import status_age_s
from minder.record.api.track_record import DEFINITIONS
from serve.state import Service

__all__ = ["render_gauges"]

_TRACK_S = 30 * 86_400.0
_PERIOD = "Of the last 30 days."


def render_gauges(service: Service, sees: Callable[[str | None], bool]) -> bytes:
    """As Prometheus text; only of jobs that the caller sees. Raises LedgerError."""
    return bytes(generate_latest(_Sight(service, sees)))


class _Sight(CollectorRegistry):
    def __init__(self, service: Service, sees: Callable[[str | None], bool]) -> None:
        super().__init__(auto_describe=False)
        self._service, self._sees = service, sees

    def collect(self) -> Iterable[Metric]:
        service = self._service
        info = GaugeMetricFamily("minder_service_info", "What runs here; always 1.", labels=["version"])
        info.add_metric([__version__], 1.0)
        yield info
        yield CounterMetricFamily("minder_service_ledger_read_failures", "Looks for new events that failed.", value=service.tail.failures)
        opened = Counter({job: 0 for job in service.known.configs() if self._sees(job)})
        for listed in service.incidents.unfinished():
            if self._sees(listed.summary.job):
                opened[listed.summary.job or ""] += 1
        incidents = GaugeMetricFamily("minder_service_open_incidents", "Incidents that are not closed.", labels=["training_job"])
        for job, count in sorted(opened.items()):
            incidents.add_metric([job], count)
        yield incidents
        yield self._ages()
        yield from self._track_record()

    def _track_record(self) -> Iterable[Metric]:
        """Five figures of the last thirty days; a share of which nothing is known is absent."""
        until_s = self._service.clock.now_s()
        seen = {job for job in self._service.jobs.pasts() if self._sees(job)}
        found = self._service.track.record(until_s - _TRACK_S, until_s, seen)
        times = GaugeMetricFamily("minder_service_detection_seconds", f"{DEFINITIONS['detection']} {_PERIOD}", labels=["quantile"])
        for quantile in (0.5, 0.95):
            if (seconds := found.detection_quantile(quantile)) is not None:
                times.add_metric([f"{quantile:g}"], seconds)
        yield times
        meaning = " ".join(f"{figure}: {text}" for figure, text in DEFINITIONS.items() if figure != "detection")
        shares = GaugeMetricFamily("minder_service_track_record_share", f"Share of what is known. {meaning} {_PERIOD}", labels=["figure"])
        counts = GaugeMetricFamily("minder_service_track_record_known", "Of how many that figure is.", labels=["figure"])
        unknown = GaugeMetricFamily("minder_service_track_record_unknown", "Of how many it is not known yet.", labels=["figure"])
        counts.add_metric(["detection"], len(found.detection_s))
        unknown.add_metric(["detection"], found.undated)
        named = {"false_isolation": found.isolation, "recovery": found.recovery, "returned": found.returned, "signals": found.signals}
        for figure, share in named.items():
            if share.value is not None:
                shares.add_metric([figure], share.value)
            counts.add_metric([figure], share.whole)
            if figure != "signals":  # what came while no controller ran cannot be counted, and is not 0
                unknown.add_metric([figure], share.unknown)
        yield from (shares, counts, unknown)

    def _ages(self) -> Metric:
        """Of jobs whose job.toml the service was given and that are not over; +Inf where there is no status at all."""
        now_s = self._service.clock.now_s()
        about = "Since the job's controller last wrote its status; a controller that runs does so every second."
        ages = GaugeMetricFamily("minder_service_controller_status_age_seconds", about, labels=["training_job"])
        for job, path in sorted(self._service.known.status_files().items()):
            if self._sees(job):
                status = self._service.status_files.read(path)
                if status is not None and status.get("phase") in ("finished", "failed"):
                    continue  # nothing writes it any more
                ours = status if status is not None and status.get("job") == job else {}
                ages.add_metric([job], status_age_s(ours, now_s))
        return ages
