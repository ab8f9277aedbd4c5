"""What flows into a controller, and out of it into a recording: opened for the machines of the start, and for each that joins later."""

from __future__ import annotations

from collections.abc import Iterable

from minder.app.admission import Admission
from minder.config import JobConfig
from minder.ingest.sources.jobfile import RecordedJob
from minder.ingest.sources.mapping import load_mapping
from minder.ingest.sources.recorder import Recorder
from minder.ingest.sources.scrape import ScrapeSource, ScrapeTarget
from minder.ingest.sources.source import Source
from minder.ingest.windows import Aligner
from minder.model.errors import ConfigError
from minder.wire.client import MachineEndpoints

__all__ = ["build_source", "open_aligner", "open_recorder", "source_words"]


def open_aligner(admission: Admission) -> Aligner:
    """Of every machine that is known now."""
    return Aligner(admission.names, interval_s=admission.config.telemetry.interval_s)


def build_source(admission: Admission) -> Source:
    """The configured source: Prometheus if a URL is given, else the built-in scraper. Raises ConfigError."""
    config, telemetry = admission.config, admission.config.telemetry
    mapping = load_mapping(telemetry.mapping)
    if config.telemetry.asks_prometheus:
        from minder.ingest.sources.prometheus import PrometheusSource

        if not telemetry.url:
            raise ConfigError('telemetry.source is "prometheus" but telemetry.url is missing: give the server\'s address')
        return PrometheusSource(telemetry.options(), telemetry.identity(admission.names), mapping, follows_late=True)
    source = ScrapeSource(_targets(config.endpoints()), mapping, telemetry.interval_s, tls=config.tls.context())
    admission.on_admit.append(lambda grown, joined: source.add(_targets([joined])))
    source.start()  # it keeps its pace while a tick is busy with a recovery
    return source


def source_words(config: JobConfig) -> str:
    """Where samples come from, for a sentence."""
    return f"the Prometheus at {_shown(config.telemetry.url)}" if config.telemetry.asks_prometheus else "the machines' agents"


def _shown(url: str | None) -> str:
    """The URL without a name and password in it."""
    scheme, _, rest = (url or "").partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _targets(endpoints: Iterable[MachineEndpoints]) -> list[ScrapeTarget]:
    return [ScrapeTarget(item.machine, item.agent.url, item.agent.secret) for item in endpoints if item.agent is not None]


def open_recorder(admission: Admission, resume: bool) -> Recorder | None:
    """A recording of what the pipeline was fed, if the configuration asks for one. `resume`: an earlier controller began it."""
    if admission.config.record_dir is None:
        return None
    recorder = Recorder(admission.config.record_dir, _recorded(admission.config), resume=resume)
    admission.on_admit.append(lambda grown, joined: recorder.note_job(_recorded(grown)))
    return recorder


def _recorded(config: JobConfig) -> RecordedJob:
    topology = config.topology()
    return RecordedJob(
        config.name,
        topology.machines,
        topology.standbys,
        config.ranks_per_machine,
        topology.parallelism,
        config.telemetry.interval_s,
        topology.domains,
    )
