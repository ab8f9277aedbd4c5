"""Everything that we ship for Prometheus and Grafana, against real servers (see conftest.py)."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from minder.doctor.foreign import look_at_proposal
from minder.doctor.proposal import propose
from minder.doctor.series import Server
from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.mapping import load_mapping
from minder.ingest.sources.prometheus import PrometheusOptions, PrometheusSource

pytestmark = pytest.mark.server("prometheus", "prometheus-node-exporter")

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD = json.loads((ROOT / "serve/deploy/grafana/minder.json").read_text(encoding="utf-8"))
# What this machine cannot show: it has no GPU, two machines are too few for a score, and the job has nothing to decide.
MAY_BE_EMPTY = {"GPU power", "Score by threshold", "Decisions per hour", "Verdicts per hour"}
JOBS = {"minder-agent", "minder-launcher", "minder-controller", "minder-service", "dcgm-exporter", "node-exporter"}


def queries() -> list[tuple[str, str]]:
    panels = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
    return panels + [(item["name"], item["expr"]) for item in DASHBOARD["annotations"]["list"]]


def filled(query: str) -> str:
    return query.replace("$__rate_interval", "30s").replace("$job", ".*").replace("$machine", ".*")


def test_every_target_of_the_shipped_configuration_is_scraped(site: Any) -> None:
    def all_up() -> bool:
        return {item["metric"]["job"] for item in site.ask("up == 1")} == JOBS and not site.ask("up == 0")

    site.wait(all_up, "all targets up")


def test_every_query_of_the_dashboard_is_answered_with_series(site: Any) -> None:
    for title, query in queries():
        if title in MAY_BE_EMPTY or title == "Evictions":
            site.ask(filled(query))  # an error of the query fails the test
        else:
            site.wait(lambda query=query: site.ask(filled(query)), f"{title}: {query}")


def test_the_dashboards_variables_find_the_job_and_its_machines(site: Any) -> None:
    for variable in DASHBOARD["templating"]["list"]:
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
        if found:
            series = site.wait(lambda found=found: site.ask(filled(found[1])), variable["name"])
            assert {item["metric"][found[2]] for item in series} == ({"llm"} if variable["name"] == "job" else {"node-0001", "node-0002"})


def test_the_rules_are_loaded_and_evaluate_without_an_error(site: Any) -> None:
    def evaluated() -> list[Any]:
        groups = (site.get("rules") or {}).get("groups", [])
        found = [rule for group in groups for rule in group["rules"]]
        return found if found and all(rule["health"] != "unknown" for rule in found) else []

    found = site.wait(evaluated, "an evaluation of all rules")
    assert [(rule["name"], rule.get("lastError")) for rule in found if rule["health"] != "ok"] == []


def test_node_and_dcgm_exporters_become_canonical_metrics_beside_an_agent(site: Any) -> None:
    """node-0001 has three exporters; one mapping reads all of them as one machine."""
    mapping = load_mapping("minder+dcgm+node")
    source = PrometheusSource(PrometheusOptions(site.url), MachineMap("machine", known=("node-0001",)), mapping)
    values: dict[tuple[str | None, str], float] = {}

    def collected() -> bool:
        for sample in source.collect(time.time()):
            assert sample.machine == "node-0001"
            values.update({(sample.device, name): value for name, value in sample.values.items()})
        return ("gpu0", "gpu_power_draw_watts") in values and (None, "disk_usage_ratio") in values and (None, "steps_total") in values

    site.wait(collected, "samples of all three")
    source.close()
    assert values["gpu0", "gpu_power_draw_watts"] == 612.337 and values["gpu1", "gpu_power_draw_watts"] == 598.104
    assert values["gpu0", "gpu_duty_cycle_ratio"] == pytest.approx(0.99) and values["gpu0", "gpu_clock_hertz"] == 1.755e9
    assert values["gpu0", "gpu_memory_used_ratio"] == pytest.approx(71042 / 81559, abs=1e-3)
    assert values["gpu1", "nvlink_bandwidth_bytes_per_second"] == pytest.approx(41.2e9 + 40.7e9)
    assert ("gpu1", "gpu_temperature_celsius") not in values  # its blank value is no temperature
    assert 0.0 < values[None, "memory_usage_ratio"] < 1.0


def test_doctor_reads_the_shipped_set_up_without_a_guess(site: Any) -> None:
    def whole() -> Any:
        found = propose(Server(site.url), time.time())
        return found if {"gpu_power_draw_watts", "steps_total", "disk_usage_ratio"} <= set(found.used) else None

    proposal = site.wait(whole, "series of all three exporters")
    assert proposal.mappings == ("minder", "dcgm", "node") and proposal.guessed == ()
    assert proposal.identity is not None and (proposal.identity.labels, proposal.identity.joins) == (("machine",), ())
    assert proposal.identity.machines == ("node-0001", "node-0002") and proposal.interval_s == 1.0
    assert list(proposal.clocks_s) == ["node-0001"]
    missing = [item for item in look_at_proposal(site.url, proposal) if item.status == "missing"]
    assert [(item.check, "node-0002 lacks gpu" in item.seen) for item in missing] == [("families", True)]  # only node-0001 has DCGM
