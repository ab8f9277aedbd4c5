"""A run over the inputs: what is kept, what is asked again, and what a verdict may know."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from minder.cli import main
from minder.ingest.sources.recording import read_recording
from minder.model.errors import BadInputError
from minder.offline.benchmark import inputs
from minder.offline.benchmark.card import PARTS, Card, benchmark_folder, read_card
from minder.offline.benchmark.cut import cut_recording
from minder.offline.benchmark.generated import write_drawn, write_simulated, write_world
from minder.offline.benchmark.inputs import judging_orders, orders_of
from minder.offline.benchmark.own import say
from minder.offline.benchmark.program import Program
from minder.offline.benchmark.right import read_right
from minder.offline.benchmark.run import Result, run_benchmark
from minder.offline.benchmark.seeds import Secret
from minder.offline.evaluation.replay import peers_of
from minder.simulate.worlds.catalogue import load_family

SAMPLE = benchmark_folder() / "sample"
TWO = ("dumps-02", "dumps-08")  # right: none, and rank 2


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    """Of two inputs, both kept as files."""
    kept = inputs._kept()
    monkeypatch.setattr(inputs, "_kept", lambda: {name: kept[name] for name in TWO})
    return read_card()


def run(card: Card, out: Path, script: str, parts: Sequence[str] = ("dumps",)) -> Result:
    return run_benchmark(card, Program(("sh", "-c", script, "sh"), "a script"), parts, out)


def saying(answer: str, log: Path) -> str:
    return f"""echo "$1" >> {log}; printf '{{"input": "%s", "answer": {answer}}}\\n' "$(basename "$1")" """


def test_every_input_is_asked_judged_and_written_down(card: Card, tmp_path: Path) -> None:
    result = run(card, tmp_path, saying("[2]", tmp_path / "log"))
    assert [(row.judged.recording, row.judged.outcome) for row in result.rows] == [("dumps-02", "wrong"), ("dumps-08", "found")]
    document = json.loads(result.file.read_text())
    assert (document["benchmark"], document["part"], len(document["inputs"])) == (card.version, "development", 2)
    assert document["figures"]["dumps"]["precision"]["value"] == 0.5


def test_a_run_that_was_cut_off_goes_on_and_one_that_ended_begins_anew(card: Card, tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = run(card, tmp_path, saying('"none"', log))
    answers = first.file.with_name("answers.jsonl")
    answers.write_text(answers.read_text().splitlines()[0] + '\n{"input": "dumps-08", "sa')
    first.file.unlink()
    log.write_text("")
    again = run(card, tmp_path, saying('"none"', log))
    assert [Path(line).name for line in log.read_text().split()] == ["dumps-08"]
    assert [row.judged for row in again.rows] == [row.judged for row in first.rows]
    log.write_text("")
    run(card, tmp_path, saying('"none"', log))
    assert len(log.read_text().split()) == 2


def test_a_folder_that_cannot_be_written_is_named_in_one_line(card: Card, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match=r"--out .*file cannot be written: .*: name another folder"):
        run(card, tmp_path / "file", saying('"none"', tmp_path / "log"))


def test_a_program_that_was_changed_begins_anew_whatever_its_name(card: Card, tmp_path: Path) -> None:
    places = []
    for answer in ("none", "unknown"):
        script = tmp_path / "answer"
        script.write_text(f'#!/bin/sh\nprintf \'{{"input": "%s", "answer": "{answer}"}}\\n\' "$(basename "$1")"\n')
        script.chmod(0o755)
        places.append(run_benchmark(card, Program((str(script),), "answer"), ["dumps"], tmp_path / "out").file.parent)
    assert places[0] != places[1]


def test_a_program_that_fails_is_a_problem_by_input_and_the_others_go_on(card: Card, tmp_path: Path) -> None:
    result = run(card, tmp_path, f"case $1 in *02) exit 1;; esac; {saying('[2]', tmp_path / 'log')}")
    assert result.problems == ("dumps-02: exit status 1: it printed no error",)
    assert [(row.state, row.right) for row in result.rows] == [("unanswered", False), ("answered", True)]


def test_time_for_all_inputs_ends(card: Card, tmp_path: Path) -> None:
    result = run(replace(card, budget_s=0.0), tmp_path, saying('"none"', tmp_path / "log"))
    assert all("the time for all inputs (0 s) was over" in (row.problem or "") for row in result.rows)


def test_a_judging_part_has_none_of_the_public_inputs() -> None:
    card, secret = read_card(), Secret("2026.11", "a secret", "salt")
    judging = judging_orders(card, ["telemetry", "logs"], secret.seed)
    development = orders_of(card, ["telemetry", "logs"], card.development_seed)
    assert len(judging) == len(card.families) * card.each + card.count
    assert not {order.name for order in judging} & {order.name for order in development}
    with pytest.raises(BadInputError, match='part "dumps" is public'):
        run_benchmark(card, Program(("true",), "x"), ["dumps"], Path("unused"), secret=secret)


def test_every_part_has_inputs_and_a_name_says_only_the_part() -> None:
    card = read_card()
    for part in PARTS:
        orders = orders_of(card, [part], card.development_seed)
        assert orders and all(order.name.startswith(f"{part}-") for order in orders)
        assert not any(family in order.name for order in orders for family in card.families)
    with pytest.raises(BadInputError, match='has no part "hangs"'):
        orders_of(card, ["hangs"], "seed")


def test_a_world_is_a_recording_that_replay_reads(tmp_path: Path) -> None:
    world = next(world for world in map(load_family("classic").draw, range(9)) if len(set(world.stages.values())) > 1)
    write_world(tmp_path / "world", world)
    recording = read_recording(tmp_path / "world")
    assert recording.machines == world.machines
    assert [recording.topology.stages_of(name) for name in world.machines] == [(world.stages[name],) for name in world.machines]


def test_machines_of_another_role_are_no_peers(tmp_path: Path) -> None:
    drawn = map(load_family("trace").draw, range(17, 30))  # the first of them is a small job with two roles
    world = next(world for world in drawn if len(set(world.roles.values())) > 1)
    write_world(tmp_path / "world", world)
    recording = read_recording(tmp_path / "world")
    assert recording.job.roles == dict(world.roles)
    peers = peers_of(recording.topology, recording.job.roles)
    same = {(one, other) for one in world.machines for other in world.machines if peers[one] == peers[other]}
    assert same == {(one, other) for one in world.machines for other in world.machines if world.roles.get(one) == world.roles.get(other)}


def test_a_seed_makes_the_same_inputs_again(tmp_path: Path) -> None:
    rights = [write_drawn(tmp_path / name / "telemetry-x", "classic", "seed", 1) for name in "ab"]
    assert rights[0] == rights[1]
    tables = [(tmp_path / name / "telemetry-x/telemetry.parquet").read_bytes() for name in "ab"]
    assert tables[0] == tables[1]


def test_logs_have_events_beside_their_telemetry(tmp_path: Path) -> None:
    right = write_simulated(tmp_path / "logs-x", "signals", "seed", 1)
    assert right.seconds > 600 and (tmp_path / "logs-x/events.jsonl").exists()


def test_a_recording_is_cut_off_at_a_time_inclusive(tmp_path: Path) -> None:
    whole = SAMPLE / "inputs/logs-04"
    times = pl.read_parquet(whole / "telemetry.parquet")["timestamp"].unique().sort()
    cut_recording(whole, tmp_path / "cut", times[40].timestamp())
    kept = pl.read_parquet(tmp_path / "cut/telemetry.parquet")["timestamp"]
    assert kept.max() == times[40]
    events = [json.loads(line)["time"] for line in (tmp_path / "cut/events.jsonl").read_text().splitlines()]
    assert 0 < len(events) < len((whole / "events.jsonl").read_text().splitlines())


@pytest.mark.parametrize(("when", "ahead"), [("always", False), ("whole", True)])
def test_a_verdict_that_needs_what_came_later_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, ahead: bool) -> None:
    """One program names the machine whatever it sees; the other only where the recording is whole."""
    card, name = replace(read_card(), check_cut=1), "logs-04"
    monkeypatch.setattr("minder.offline.benchmark.run.orders_of", lambda *unused: [inputs.Order(name, "logs", "kept", 0, "")])
    place = tmp_path / f"inputs-{card.version}-{hashlib.sha256(card.development_seed.encode()).hexdigest()[:8]}"
    for part in ("inputs", "truths"):
        shutil.copytree(SAMPLE / part, place / part)
    size = (SAMPLE / "inputs" / name / "telemetry.parquet").stat().st_size
    line = f"""printf '{{"input": "{name}", "answer": ["node-0003"], "time": "2026-03-02T06:06:00Z"}}\\n'"""
    other = f"""printf '{{"input": "{name}", "answer": "none"}}\\n'"""
    whole = f"""if [ $(wc -c < "$1/telemetry.parquet") -eq {size} ]; then {line}; else {other}; fi"""
    (row,) = run(card, tmp_path, line if when == "always" else whole, ("logs",)).rows
    assert (row.judged.outcome, "cut off" in (row.problem or "")) == (("wrong", True) if ahead else ("found", False))


@pytest.mark.parametrize("name", sorted(path.name for path in (SAMPLE / "inputs").iterdir() if not path.name.startswith("telemetry")))
def test_minder_itself_answers_the_sample(name: str) -> None:
    right = read_right(SAMPLE / "truths" / f"{name}.json")
    assert {one for said in say(SAMPLE / "inputs" / name) for one in said.names} == set(right.names)


def test_what_minder_cannot_read_is_unknown_and_not_none(tmp_path: Path) -> None:
    for part in ("stacks", "dumps", "telemetry"):
        (tmp_path / f"{part}-1").mkdir()
        assert [item.word for item in say(tmp_path / f"{part}-1")] == ["unknown"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--benchmark", "hangs"], 'no part "hangs"'),
        (["--benchmark", "--program", "no-such-program"], "no-such-program"),
        (["--benchmark", "--truth", "truth.json"], "leave them out with --benchmark"),
        (["--benchmark", "--judging", "seed.json"], "does not match its commitment"),
        (["--benchmark", "--against", "seed.json"], "is no result of the benchmark"),
        (["--program", "true", "somewhere"], "give --benchmark too"),
        ([], "no recording is named"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("seed.json").write_text(json.dumps({"version": read_card().version, "seed": "s", "salt": "t"}))
    assert main(["evaluate", *arguments]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert says in line


def test_the_command_prints_a_table_and_compares(card: Card, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "my.sh"
    script.write_text(saying("[2]", tmp_path / "log"))
    command = ["evaluate", "--benchmark", "dumps", "--program", f"sh {script}", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "1 / 1 / 0 / 0" in shown[2]
    file = shown[-1].split()[-1]
    assert main([*command, "--format", "json", "--against", file]) == 0
    assert json.loads(capsys.readouterr().out)["against"]["f1"]["value"] == 0.0
