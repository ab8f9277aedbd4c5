"""`minder machine test` and `minder job diagnose`: whose agents are asked, what is written, what is refused, the exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.app import pairing, probing
from minder.app.probing import ProbedMachine
from minder.cli import main
from minder.model.evidence import Verdict
from minder.model.probes import Measurement, ProbeResult
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.pairs import fold_pairs
from minder.record.incidents.probes import fold_probes
from minder.wire.client import MachineEndpoints
from minder.wire.tokens import write_token

Run = Callable[..., tuple[int, str, str]]


class Agents:
    """Answers in the agents' place: `values` in B/s of each machine's disk; None refuses."""

    def __init__(self) -> None:
        self.values: dict[str, float | None] = {}
        self.running: dict[str, list[int]] = {}
        self.asked: list[tuple[MachineEndpoints, tuple[str, ...], bool]] = []

    def ask(self, endpoints: Any, names: Any, *, force: bool = False, tls: Any = None) -> dict[str, ProbedMachine]:
        self.asked += [(item, tuple(names), force) for item in endpoints]
        return {item.machine: self._of(item.machine) for item in endpoints}

    def _of(self, machine: str) -> ProbedMachine:
        value = self.values.get(machine, 1e9)
        if value is None:
            return ProbedMachine(machine, refused="training processes of llm run")
        item = Measurement("disk_write", value, "B/s", "higher")
        return ProbedMachine(machine, (ProbeResult("disk", 1, "measured", "", (item,), {"folder": "/x"}, started_s=5.0),))

    def ranks(self, endpoints: Any, job: str, tls: Any = None) -> dict[str, list[int]]:
        return self.running


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> Agents:
    found = Agents()
    monkeypatch.setattr(probing, "ask_machines", found.ask)
    monkeypatch.setattr(probing, "ranks_that_run", found.ranks)
    return found


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Job llm has six machines and a standby, all with agents."""
    opened = Ledger(tmp_path / "ledger.db")
    urls = {f"m{index}": f"http://10.0.0.{index}:9401" for index in range(6)}
    opened.append(kinds.JOB_REGISTERED, {"machines": list(urls), "agents": urls}, job="llm")
    opened.append(kinds.STANDBY_ADDED, {"machine": "s0", "agent": "http://10.0.0.9:9401"}, job="llm")
    return opened


@pytest.fixture
def token(tmp_path: Path) -> str:
    write_token(tmp_path / "token")
    return str(tmp_path / "token")


def runs(ledger: Ledger) -> list[tuple[str, str, str]]:
    return [(run.machine, run.why, run.judgements[0].verdict) for run in fold_probes(ledger.events(kinds=[kinds.PROBES]))]


def test_a_machines_agent_is_found_in_the_ledger_and_the_result_is_written_down(
    run_on_ledger: Run, ledger: Ledger, agents: Agents, token: str
) -> None:
    status, out, _ = run_on_ledger("machine", "test", "m2", "--probes", "disk", "--agent-token-file", token)
    assert status == 0 and "not judged" in out and "1 GB/s" in out
    ((endpoint, names, force),) = agents.asked
    assert endpoint.agent is not None and endpoint.agent.url == "http://10.0.0.2:9401" and endpoint.agent.token
    assert (names, force) == (("disk",), False) and runs(ledger) == [("m2", "test", "not_judged")]


def test_the_ledgers_past_of_a_machine_judges_it(run_on_ledger: Run, ledger: Ledger, agents: Agents, token: str, monkeypatch: Any) -> None:
    words = ("machine", "test", "m2", "--probes", "disk", "--agent-token-file", token)
    for started_s in (1.0, 2.0, 3.0, 4.0):
        monkeypatch.setattr(agents, "_of", lambda machine, time_s=started_s: timed(machine, 4e8 if time_s == 4.0 else 1e9, time_s))
        status, out, _ = run_on_ledger(*words)
    assert status == 1 and "slow" in out and "3 earlier results" in out
    assert [verdict for _, _, verdict in runs(ledger)] == ["not_judged"] * 3 + ["slow"]


def timed(machine: str, value: float, time_s: float) -> ProbedMachine:
    item = Measurement("disk_write", value, "B/s", "higher")
    return ProbedMachine(machine, (ProbeResult("disk", 1, "measured", "", (item,), started_s=time_s),))


def test_all_machines_of_a_job_are_compared_side_by_side(run_on_ledger: Run, ledger: Ledger, agents: Agents, token: str) -> None:
    agents.values = {"m3": 2e8, "s0": None}
    status, out, _ = run_on_ledger("job", "diagnose", "llm", "--probes", "disk", "--agent-token-file", token)
    lines = out.splitlines()
    assert status == 1 and len(lines) == 1 + 7 + 2, out
    assert lines[4].split() == ["m3", "slow", "200", "MB/s"] and lines[1].split()[:2] == ["m0", "pass"]
    assert "s0: not tested: training processes of llm run" in lines and any(
        line.startswith("m3: disk slow: disk_write is 2e+08") for line in lines
    )
    assert {machine for machine, why, _ in runs(ledger)} == {f"m{index}" for index in range(6)}
    document = json.loads(run_on_ledger("job", "diagnose", "llm", "--probes", "disk", "--agent-token-file", token, "--format", "json")[1])
    assert {item["machine"]: [found["verdict"] for found in item["judgements"]] for item in document}["m3"] == ["slow"]


def test_a_job_that_runs_is_not_disturbed_unless_it_is_forced(run_on_ledger: Run, ledger: Ledger, agents: Agents, token: str) -> None:
    agents.running = {"m1": [4, 5]}
    words = ("job", "diagnose", "llm", "--probes", "disk", "--agent-token-file", token)
    status, out, err = run_on_ledger(*words)
    assert (status, out, err.count("\n")) == (2, "", 1) and "ranks of llm run or wait (m1: 4, 5)" in err and agents.asked == []
    assert run_on_ledger(*words, "--force")[0] == 0 and all(force for _, _, force in agents.asked)


def test_a_configuration_names_the_agents_and_their_token(
    agents: Agents, token: str, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.delenv("MINDER_LEDGER", raising=False)
    job = tmp_path / "job.toml"
    job.write_text(
        'name = "new"\nagent_token_file = "token"\nstate_dir = "state"\n[[machines]]\nname = "m0"\nagent = "http://a:1"\n'
        '[[machines]]\nname = "m1"\nagent = "http://a:2"\nstandby = true\n'
    )
    Ledger(tmp_path / "state" / "ledger.db").close() if (tmp_path / "state").mkdir() is None else None
    assert main(["job", "diagnose", "new", "--probes", "disk", "--config", str(job)]) == 0
    assert [item.machine for item, _, _ in agents.asked] == ["m0", "m1"]
    assert main(["machine", "test", "m1", "--probes", "disk", "--config", str(job)]) == 0
    with Ledger(tmp_path / "state" / "ledger.db") as opened:
        assert [machine for machine, _, _ in runs(opened)] == ["m0", "m1", "m1"]
    job.write_text(job.read_text().replace('agent = "http://a:1"', 'agent = "http://a:1"\nlauncher = "http://a:7"'))
    assert main(["job", "diagnose", "new", "--probes", "disk", "--config", str(job), "--launchers"]) == 0
    asked = agents.asked[-1][0]
    assert (asked.machine, asked.agent) == ("m0", None) and asked.launcher is not None and asked.launcher.url == "http://a:7"
    assert main(["machine", "test", "m7", "--config", str(job)]) == 2 and main(["job", "diagnose", "other", "--config", str(job)]) == 2
    err = capsys.readouterr().err.splitlines()
    assert '--config names no machine "m7" with an agent' in err[-2] and '--config is of job "new"' in err[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("machine", "test", "m7"), 'no job in the ledger has a machine "m7"'),
        (("machine", "test", "m2"), "give --agent-token-file"),
        (("machine", "test"), "name the machine, or give --local"),
        (("machine", "test", "m2", "--probes", "fan"), 'no probe "fan"'),
        (("machine", "test", "m2", "--agent", "10.0.0.2"), "--agent"),
        (("machine", "test", "m2", "--format", "xml"), "--format"),
        (("machine", "test", "--local", "--force"), "leave --agent, --config and --force out"),
        (("machine", "test", "m2", "--folder", "/x"), "--folder goes with --local"),
        (("job", "diagnose", "none"), 'no job "none" with agents'),
        (("job", "diagnose", "llm", "--probes", "fan"), 'no probe "fan"'),
        (("job", "diagnose", "llm", "--launchers", "--agent-token-file", "TOKEN"), "--launchers needs --config"),
    ],
)
def test_bad_input_is_one_line_and_asks_no_agent(
    run_on_ledger: Run, ledger: Ledger, agents: Agents, words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("MINDER_STATE_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("MINDER_AGENT_TOKEN_FILE", raising=False)
    write_token(tmp_path / "token")
    status, out, err = run_on_ledger(*(str(tmp_path / "token") if word == "TOKEN" else word for word in words))
    assert (status, out, err.count("\n")) == (2, "", 1) and said in err and agents.asked == []


def test_this_machine_is_tested_without_agent_and_without_ledger(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("MINDER_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("MINDER_LEDGER", raising=False)
    assert main(["machine", "test", "--local", "--probes", "clock", "--format", "json"]) == 0
    said = capsys.readouterr()
    (found,) = json.loads(said.out)
    assert found["results"][0]["state"] == "not_applicable" and "there is no ledger here" in said.err
    assert not (tmp_path / "ledger.db").exists()


def test_a_retest_may_be_of_an_untouched_machine_and_return_it(run_on_ledger: Run, ledger: Ledger) -> None:
    assert run_on_ledger("machine", "retest", "m2", "--job", "llm", "--untouched", "--return")[0] == 0
    (order,) = ledger.events(kinds=[kinds.RETEST_ASKED])
    assert (order.payload["untouched"], order.payload["return"]) == (True, True)


def test_pairs_of_a_job_go_into_its_open_incident(
    run_on_ledger: Run, ledger: Ledger, agents: Agents, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.append(kinds.GENERATION_STARTED, {"generation": 4, "rank_machine": {}}, job="llm")

    async def ask(client: Any, orders: Any, force: bool) -> ProbedMachine:
        assert orders[0]["pair"]["generation"] == 4
        state = "failed" if {orders[0]["pair"]["own"], orders[0]["pair"]["peer"]} == {"10.0.0.0", "10.0.0.1"} else "measured"
        rates = [Measurement(f"pair_{way}_bandwidth", 1e9, "B/s", "higher") for way in ("send", "receive")]
        return ProbedMachine(client.machine, (ProbeResult("pair", 1, state, "", tuple(rates)),))

    monkeypatch.setattr(pairing, "ask_machine", ask)
    incident = ledger.open_incident(Verdict(5.0, "job", "page", (), "unknown", 0.5, 4.0), job="llm")
    words = ("job", "diagnose", "llm", "--pairs", "--agent-token-file", token)
    status, out, _ = run_on_ledger(*words)
    assert status == 1 and "m0 -> m1" in out and "the link between m0 and m1 is to blame" in out and not agents.asked
    (run,) = fold_pairs(ledger.events(kinds=[kinds.PAIRS]))
    assert (run.incident, run.job, run.graph.links) == (incident, "llm", (("m0", "m1"),))
    assert json.loads(run_on_ledger(*words, "--format", "json")[1])["links"] == [["m0", "m1"]]
    agents.running = {"m2": [4]}
    assert run_on_ledger(*words)[0] == 2
