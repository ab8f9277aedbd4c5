"""Exporters as they are found: which machines there are, what distinguishes them, and what each metric is made of."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minder.doctor.contact import look_at_prometheus
from minder.doctor.draft import rules_text
from minder.doctor.finding import is_fine
from minder.doctor.foreign import look_at_proposal
from minder.doctor.proposal import Proposal, propose
from minder.ingest.sources.identity import Join
from minder.model.errors import SourceError
from tests.doctor.recorded import DATA, NOW_S, Recorded, site

BY_NODENAME = Join("node_uname_info", (("instance", "instance"),), "nodename")


def mapping(proposal: Proposal, folder: Path) -> str:
    """As the draft's telemetry.mapping."""
    (folder / "guessed.toml").write_text(rules_text(proposal.guessed))
    return "+".join([*proposal.mappings, *([str(folder / "guessed.toml")] if proposal.guessed else [])])


def read(found: Recorded, proposal: Proposal, folder: Path, *earlier: Recorded) -> dict[str, dict[str, float]]:
    """Machine to what live collection makes of it with the draft, a device's last value for all."""
    assert proposal.identity is not None
    values: dict[str, dict[str, float]] = defaultdict(dict)
    machines = proposal.identity.machine_map(proposal.identity.machines)
    for sample in found.samples(machines, mapping(proposal, folder), *earlier):
        values[sample.machine].update(sample.values)
    return dict(values)


@pytest.mark.parametrize(
    ("case", "machines", "labels", "joins", "families"),
    [
        ("01-k8s-two-exporters", "gpu-h100-0{}", ("Hostname",), (BY_NODENAME,), {"gpu", "host", "network"}),
        ("02-agents-that-scrape-localhost", "edge-0{}", ("agent_hostname",), (), {"gpu", "host", "network"}),
        ("03-recorded-series-without-instance", "gpu-n{}", ("node",), (), {"gpu"}),
        ("04-label-on-some-series-only", "node0{}", ("exported_instance",), (), {"gpu", "host", "interconnect"}),
        ("05-applications-beside-the-gpus", "gpu-{}", ("node",), (), {"gpu"}),
        ("06-amd-device-metrics-exporter", "amd-0{}", ("hostname", "node"), (), {"gpu", "host", "network"}),
        ("07-percent-read-while-idle", "gpu-0{}", ("instance",), (), {"gpu", "host"}),
        ("08-stamps-behind", "10.0.0.1{}", ("instance",), (), {"gpu", "network"}),
    ],
)
def test_each_site_has_its_machines_whole_and_live_collection_reads_them(
    case: str, machines: str, labels: tuple[str, ...], joins: tuple[Join, ...], families: set[str], tmp_path: Path
) -> None:
    found = site(DATA / case)
    proposal = propose(found, NOW_S)
    identity = proposal.identity
    assert identity is not None
    first = 0 if case.startswith("03") else 1
    assert identity.machines == tuple(machines.format(number) for number in range(first, first + 4))
    assert (identity.labels, identity.joins, identity.left_out) == (labels, joins, ())
    assert set(identity.families.values()) == {frozenset(families)}
    assert set(proposal.clocks_s) in (set(), set(identity.machines))  # by machine, whatever a target is called
    assert is_fine(look_at_proposal(found.url, proposal, 4))
    assert not is_fine(look_at_proposal(found.url, proposal, 5))  # green only where the count is the job's
    values = read(found, proposal, tmp_path)
    assert set(values) == set(identity.machines)
    assert len({frozenset(metrics) for metrics in values.values()}) == 1
    assert all(0.0 <= metrics["gpu_duty_cycle_ratio"] <= 1.0 and metrics["gpu_power_draw_watts"] > 50.0 for metrics in values.values())


def test_a_machine_survives_the_restart_of_its_exporters_pod(tmp_path: Path) -> None:
    before = site(DATA / "01-k8s-two-exporters")
    moved = tuple(
        replace(target, labels={**target.labels, "instance": "10.244.7.31:9400", "pod": "nvidia-dcgm-exporter-zzzzz"})
        if target.labels["instance"] == "10.244.0.9:9400"
        else target
        for target in before.targets
    )
    after = replace(before, targets=moved)
    values = read(after, propose(before, NOW_S), tmp_path, before)
    assert len(values) == 4 and "gpu_power_draw_watts" in values["gpu-h100-01"] and "memory_usage_ratio" in values["gpu-h100-01"]


def test_what_an_application_says_of_itself_makes_no_machine_and_no_metric() -> None:
    proposal = propose(site(DATA / "05-applications-beside-the-gpus"), NOW_S)
    assert proposal.guessed == () and "billing" not in proposal.exporters and "cpu_usage_ratio" not in proposal.used


def test_amd_values_are_taken_from_the_right_series(tmp_path: Path) -> None:
    found = site(DATA / "06-amd-device-metrics-exporter")
    proposal = propose(found, NOW_S)
    assert proposal.mappings == ("node", "amd") and proposal.guessed == ()
    own = [row for row in found.rows() if row[1].get("hostname") == "amd-01" and row[1].get("gpu_id") == "0"]
    exported = {(name, labels.get("clock_type")): value for name, labels, value in own}
    samples = found.samples(proposal.identity.machine_map(["amd-01"]), "node+amd")  # type: ignore[union-attr]
    values = {metric: value for sample in samples if sample.device == "gpu0" for metric, value in sample.values.items()}
    assert values["gpu_duty_cycle_ratio"] == pytest.approx(exported["gpu_gfx_activity", None] / 100.0)
    assert values["gpu_power_draw_watts"] == exported["gpu_package_power", None]
    assert values["gpu_temperature_celsius"] == exported["gpu_junction_temperature", None]
    assert values["gpu_clock_hertz"] == pytest.approx(exported["gpu_clock", "GPU_CLOCK_TYPE_SYSTEM"] * 1e6)


def test_a_percentage_that_reads_0_is_one_by_its_name(tmp_path: Path) -> None:
    idle = site(DATA / "07-percent-read-while-idle")
    proposal = propose(idle, NOW_S)
    working = replace(idle, targets=tuple(replace(target, page=_working(target.page)) for target in idle.targets))
    assert read(working, proposal, tmp_path)["gpu-01"]["gpu_duty_cycle_ratio"] == pytest.approx(0.97)


def _working(page: str) -> str:
    return "".join(line.rpartition(" ")[0] + " 97\n" if "gpu_util_percent{" in line else line + "\n" for line in page.splitlines())


def test_a_series_without_a_known_machine_is_left_out_and_counted(tmp_path: Path) -> None:
    found = site(DATA / "01-k8s-two-exporters")
    nameless = replace(found.targets[0], page=found.targets[0].page.replace('Hostname="gpu-h100-01"', 'Hostname=""'))
    spoiled = replace(found, targets=(nameless, *found.targets[1:]))
    values = read(spoiled, propose(found, NOW_S), tmp_path)
    assert len(values) == 4 and "gpu_power_draw_watts" not in values["gpu-h100-01"] and "gpu_power_draw_watts" in values["gpu-h100-02"]


def test_a_server_that_lacks_a_function_is_read_all_the_same() -> None:
    class Plain(Recorded):
        def _answer(self, query: str) -> Any:
            if "last_over_time" in query:
                raise SourceError("unknown function")
            return Recorded._answer(self, query)

    found = site(DATA / "01-k8s-two-exporters")
    proposal = propose(Plain(found.url, targets=found.targets), NOW_S)
    assert proposal.identity is not None and len(proposal.identity.machines) == 4 and not proposal.gone


def test_a_slow_answer_does_not_make_a_clock_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([100.0, 108.0] * 2)
    monkeypatch.setattr("minder.doctor.series.time.monotonic", lambda: next(ticks))
    server = Recorded("http://prometheus.example:9090")
    assert server.offset_s(NOW_S - 7.0) == 0.0  # asked at -7 s, answered within 8 s
    assert server.offset_s(NOW_S - 60.0) == pytest.approx(52.0)


def test_a_table_shows_what_led_to_the_choice() -> None:
    proposal = propose(site(DATA / "04-label-on-some-series-only"), NOW_S)
    assert proposal.identity is not None
    verdicts = {row.way: row.verdict for row in proposal.identity.table}
    assert (
        verdicts['label "exported_instance"'] == "chosen"
        and verdicts['label "instance"'] == "possible"
        and "lack it" in verdicts['label "hostname"']
    )


def test_what_does_not_work_comes_first() -> None:
    found = site(DATA / "01-k8s-two-exporters")
    without_one = replace(found, targets=found.targets[:-1], interval="2m")
    findings = look_at_proposal(found.url, propose(without_one, NOW_S))
    assert [item.check for item in findings[:2]] == ["families", "interval"] and findings[2].check == "machines"
    assert "gpu-h100-04 lacks host, network" in findings[0].seen


def test_a_server_that_is_not_there_has_one_finding(tmp_path: Path) -> None:
    contact = look_at_prometheus({"url": "http://obs:s3cret@127.0.0.1:1"}, tmp_path / "job.toml")
    assert [item.status for item in contact.findings] == ["missing"] and "s3cret" not in contact.findings[0].seen and not contact.written
