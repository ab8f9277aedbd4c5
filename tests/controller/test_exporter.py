"""A controller's own metrics: what it concluded, what is left, what is degraded; and who may read them."""

from __future__ import annotations

import logging
import re
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import minder.act.controller.reporting.exporter as exporter_module
from minder.act.controller.reporting.exporter import Exporter, exposition
from minder.act.controller.reporting.gauges import Gauges, Sight
from minder.config import MetricsConfig
from minder.ingest.sources.exposition import parse_exposition
from minder.model.errors import ConfigError, LedgerError
from minder.model.evidence import Evidence, Scores, Verdict
from minder.model.telemetry import Sample
from minder.record.incidents.proofs import Proof
from minder.wire.contact_log import RefusedCallers

JOB = {"training_job": "llm"}
DOCUMENTED = (Path(__file__).resolve().parents[2] / "docs/metrics.md").read_text(encoding="utf-8")


def read(sight: Sight) -> dict[str, float]:
    """Every sample as `name{label="value"}`, without the labels that all carry."""
    found = {}
    for name, labels, value in parse_exposition(exposition((sight.measures.registry, Gauges(sight)), JOB).decode()):
        assert labels.pop("training_job") == "llm"
        text = ",".join(f"{key}={labels[key]}" for key in sorted(labels))
        found[name.removeprefix("minder_controller_") + (f"{{{text}}}" if text else "")] = value
    return found


def stall_of(machine: str, time_s: float) -> Verdict:
    evidence = (Evidence("telemetry", machine, "it does not move", since_s=time_s - 5.0),)
    return Verdict(time_s, "machine", "evict", (machine,), "stall", 0.95, time_s - 5.0, evidence, (), ("stall",))


def test_a_quiet_job_shows_its_phase_budgets_and_that_it_is_alive(world: Any, begun: Any) -> None:
    found = read(world.sight(begun))
    assert found["phase{phase=running}"] == 1.0 and found["phase{phase=failed}"] == 0.0
    assert found["generation"] == 1.0 and found["machines{role=training}"] == 4.0 and found["machines{role=standby}"] == 2.0
    assert (found["evictions_left{limit=hour}"], found["evictions_left{limit=day}"]) == (4.0, 8.0)
    assert (
        found["evictions_left{limit=breaker}"] == 2.0
        and found["breaker_open"] == 0.0 == found["approvals_waiting"]
        and found["restarts_left"] == 3.0
    )
    assert found["last_tick_timestamp_seconds"] == pytest.approx(world.clock.now_s(), abs=1.1)
    assert found["stage_seconds_count{stage=judge}"] == 3.0 and found["degraded{what=ledger}"] == 0.0


def test_an_eviction_is_counted_and_taken_from_what_is_left(world: Any, begun: Any) -> None:
    world.script = lambda observation: [stall_of("m1", observation.now_s)] if begun.state.generation == 1 else []
    world.tick(begun, 3)
    found = read(world.sight(begun))
    assert found["verdicts_total{cause=stall,kind=machine,tier=evict}"] == 1.0
    assert found["decisions_total{action=evict,reason=act}"] == 1.0 and found["actions_total{outcome=done}"] == 1.0
    assert found["evictions_left{limit=job}"] == found["evictions_left{limit=day}"] == 7.0
    names = {re.sub(r"(_bucket|_count|_sum)?(\{.*)?$", "", name) for name in found}
    assert [name for name in sorted(names) if f"`minder_controller_{name}`" not in DOCUMENTED] == []
    assert found["machines{role=evicted}"] == 1.0 and found["generation"] == 2.0


def test_what_is_not_known_is_no_comfortable_number(world: Any, begun: Any) -> None:
    """No sample ever came, a machine was never heard of, the ledger cannot be read."""

    def broken(now_s: float) -> Any:
        raise LedgerError("disk full")

    world.fleet.launchers["m2"].refuses = "HTTP 401"
    found = read(world.sight(begun, history=broken))
    assert found["sample_age_seconds{machine=m0}"] == float("inf") == found["agent_age_seconds{machine=m2}"]
    assert not [name for name in found if name.startswith(("evictions_left", "restarts_left", "breaker_open", "pauses"))]
    assert found["degraded{what=ledger}"] == found["degraded{what=telemetry}"] == found["degraded{what=refused}"] == 1.0
    begun.controller._stages.measures.sampled([Sample(world.clock.now_s() - 7.0, "m0", {})])
    found = read(world.sight(begun))
    assert found["sample_age_seconds{machine=m0}"] == 7.0 and found["degraded{what=telemetry}"] == 0.0


def test_an_error_that_a_stage_swallowed_is_counted(world: Any, begun: Any) -> None:
    def fail(now_s: float) -> Any:
        raise ValueError("no")

    world.source.collect = fail
    world.tick(begun, 2)
    found = read(world.sight(begun))
    assert found["errors_total{stage=telemetry}"] == 2.0 and found["stage_seconds_count{stage=telemetry}"] == 5.0


def test_who_has_no_token_reads_nothing(world: Any, begun: Any) -> None:
    sight = world.sight(begun)
    exporter = Exporter("127.0.0.1", 0, "secret", (sight.measures.registry, Gauges(sight)), JOB)
    try:
        url = f"http://127.0.0.1:{exporter.port}"
        with httpx.Client(trust_env=False, timeout=20.0) as http:
            assert http.get(f"{url}/metrics").status_code == 401
            assert http.get(f"{url}/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
            good = {"Authorization": "Bearer secret"}
            assert http.get(f"{url}/", headers=good).status_code == 404 and http.post(f"{url}/metrics", headers=good).status_code == 501
            answer = http.get(f"{url}/metrics", headers=good)
        assert answer.status_code == 200 and "minder_controller_info" in answer.text
        with pytest.raises(ConfigError, match=r"metrics\.listen: cannot listen"):
            Exporter("127.0.0.1", exporter.port, None, (), JOB)
    finally:
        exporter.close()
        exporter.close()


def test_metrics_are_off_and_on_this_machine_unless_told_otherwise() -> None:
    assert MetricsConfig().address is None
    assert MetricsConfig(listen="127.0.0.1:9403").address == ("127.0.0.1", 9403)
    assert MetricsConfig(listen="[::1]:9403").address == ("::1", 9403)
    for listen in ("0.0.0.0:9403", "node-1:9403", "9403", "127.0.0.1:", "127.0.0.1:99999"):
        with pytest.raises(ValueError, match=r"metrics\.listen"):
            MetricsConfig(listen=listen)
    assert MetricsConfig(listen="0.0.0.0:9403", token_file="token").address == ("0.0.0.0", 9403)


def test_the_configured_address_opens_with_the_job_and_closes_with_it(world: Any, begun: Any) -> None:
    sight = world.sight(begun)
    begun.export = lambda: Exporter("127.0.0.1", 0, None, (Gauges(sight),), JOB)
    begun.begin()
    port = begun.exporter.port
    assert httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).status_code == 200
    begun.exporter.close()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_score_is_told_by_its_threshold(world: Any, begun: Any) -> None:
    begun.controller._stages.measures.show(1.0, {"scores": Scores(1.0, ("m0", "m1"), np.array([6.0, 1.0]), 3.0)})
    found = read(world.sight(begun))
    assert found["score_ratio{machine=m0}"] == 2.0 and found["score_ratio{machine=m1}"] == pytest.approx(1 / 3)


def test_who_waits_before_showing_a_token_is_given_up_capped_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exporter_module, "_PATIENCE_S", 1.5)
    monkeypatch.setattr(exporter_module, "_MOST_CONNECTIONS", 2)
    monkeypatch.setattr(exporter_module, "_refused", RefusedCallers(logging.getLogger("minder.test")))
    exporter = Exporter("127.0.0.1", 0, "secret", (), JOB)
    try:
        slow = [socket.create_connection(("127.0.0.1", exporter.port), timeout=10.0) for _ in range(2)]
        for each in slow:
            each.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        with socket.create_connection(("127.0.0.1", exporter.port), timeout=10.0) as third:
            assert third.recv(1) == b"", "closed at once, or when it has shown nothing"
        for each in slow:
            assert each.recv(1) == b""
            each.close()
        assert httpx.get(f"http://127.0.0.1:{exporter.port}/metrics").status_code == 401
        found, until_s = set[str](), time.monotonic() + 10.0  # a connection is closed before its line is written
        while not found >= {"slow headers", "token"} and time.monotonic() < until_s:
            found = {record.minder_fields["reason"] for record in caplog.records if record.getMessage() == "caller refused"}  # type: ignore[attr-defined]
            time.sleep(0.02)
    finally:
        exporter.close()
    assert found >= {"slow headers", "token"}


def test_standbys_are_counted_by_what_their_probes_prove(world: Any, begun: Any) -> None:
    assert not any(name.startswith("standby_proofs") for name in read(world.sight(begun))), "none is tested"
    proven = {"s0": Proof("passed", 1.0), "s1": Proof("failed", 1.0, "gemm"), "s2": Proof()}
    begun.controller._stages.measures.show(1.0, {"proven": proven})
    found = {name: value for name, value in read(world.sight(begun)).items() if name.startswith("standby_proofs")}
    assert found == {
        f"standby_proofs{{state={state}}}": count for state, count in (("passed", 1), ("unknown", 1), ("slow", 0), ("failed", 1))
    }
