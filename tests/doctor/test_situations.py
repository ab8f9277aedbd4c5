"""Exporters and sites of every kind: what a careful engineer says of them first, and what live collection then reads."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from minder.config import JobConfig, load_config
from minder.doctor.draft import Draft
from minder.doctor.finding import is_fine
from minder.doctor.foreign import look_at_proposal
from minder.doctor.proposal import propose
from minder.ingest.sources.mapping import load_mapping
from minder.ingest.sources.translate import RawSeries, Translator
from tests.doctor.recorded import NOW_S, Recorded
from tests.doctor.situations import SITUATIONS, Situation


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda item: item.name)
def test_the_machines_the_metrics_and_what_is_said(situation: Situation, tmp_path: Path) -> None:
    server = Recorded("http://prometheus.example:9090", selector=situation.selector, targets=situation.targets)
    proposal = propose(server, NOW_S)
    findings = look_at_proposal(server.url, proposal)
    said = "\n".join(f"{item.check}: {item.seen} -> {item.mend}" for item in findings)
    machines = () if proposal.identity is None else proposal.identity.machines
    assert sorted(machines) == sorted(situation.machines), said
    assert is_fine(findings) == situation.fine, said
    assert not [words for words in situation.says if words not in said], said
    assert not [words for words in situation.unsaid if words in said], said
    assert not set(situation.absent) & set(proposal.used)
    if proposal.identity is None:
        return
    if situation.families is not None:
        assert set(proposal.identity.families.values()) == {situation.families}
    Draft(tmp_path / "job.toml", proposal, server, "job").write()
    values = collected(server, load_config(tmp_path / "job.toml"))
    assert set(values) == set(situation.machines)
    for metric, (low, high) in situation.values.items():
        assert all(low <= found.get(metric, -1.0) <= high for found in values.values()), (metric, values)


def collected(server: Recorded, config: JobConfig) -> dict[str, dict[str, float]]:
    """Machine to what live collection with this configuration has of it after two scrapes, a device's last value for all."""
    machines = config.telemetry.identity([machine.name for machine in config.machines])
    translator = Translator(load_mapping(config.telemetry.mapping), machines)
    found: dict[str, dict[str, float]] = defaultdict(dict)
    asked = replace(server, selector=config.telemetry.selector)
    for time_s in (NOW_S, NOW_S + 15.0):
        series = [RawSeries(item.name, item.labels, ((time_s, item.value),)) for item in asked.series(".+", 60.0)]
        machines.learn((item.name, item.labels, time_s) for item in series)
        for sample in translator.translate(series):
            found[sample.machine].update(sample.values)
    return {machine: values for machine, values in found.items() if values}
