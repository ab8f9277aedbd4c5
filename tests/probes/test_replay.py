"""A machine's part of a group that replays the job: what may be ordered, what ranks write down, what a launcher's script makes of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from minder.edge.launcher.requests import refused_ranks
from minder.edge.probes.contract import OF_LAUNCHERS, PROBES, find_program
from minder.edge.probes.orders import Probing, parse_probes
from minder.edge.probes.replay import measure
from minder.edge.probes.replay_lines import read_run
from minder.edge.probes.replay_order import parse_replay
from minder.edge.worker.replay_plan import replay
from minder.model.errors import BadInputError
from minder.model.replay import RankRun

RANKS = [{"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1"} for rank in range(2)]
ORDER = {
    "group": "h0", "program": "script", "ranks": RANKS, "meetings": [{"generation": 4, "port": 29600}, {"generation": 5, "port": 29601}],
    "parallelism": {"tensor": 2}, "steps": 3, "runs": 2, "seed": 7, "layers": 4,
}  # fmt: skip
SCRIPT = """
import os, sys, time
import minder
asked = minder.replay()
run, rank = os.environ["MINDER_GENERATION"], os.environ["RANK"]
for step in range(1, asked.steps + 1):
    {fault}
    asked.note(step, f"{{asked.seed}} {{asked.layers}} {{step}}".encode())
print(os.environ["MINDER_CHECKPOINT_DIR"], os.environ["MASTER_PORT"])
"""


def play(tmp_path: Path, fault: str, **changes: Any) -> dict[str, list[dict[str, Any]]]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(fault=fault or "pass"))
    found = measure({"replay": {**ORDER, **changes}, "script": [str(script)], "limit_s": 30.0, "environment": {}})
    assert found.state == "measured" and found.facts["processor"]
    return json.loads(json.dumps(dict(found.data["ranks"])))


def test_the_launchers_own_script_is_run_once_for_each_rank_and_run(tmp_path: Path) -> None:
    found = play(tmp_path, "")
    assert [len(runs) for runs in found.values()] == [2, 2] and set(found) == {"0", "1"}
    hashes = {tuple(run["hashes"]) for runs in found.values() for run in runs}
    assert len(hashes) == 1 and len(next(iter(hashes))) == 3
    assert all(run["end"] == "finished" and run["begun"] for runs in found.values() for run in runs)


@pytest.mark.parametrize(
    ("fault", "end", "said"),
    [
        ("asked.not_finite(step, 'loss'); sys.exit(1)", "nan", "step 1: loss"),
        ("os.kill(os.getpid(), 9)", "crash", "ended by signal 9"),
        ("raise ValueError('broken')", "crash", "ended with status 1: ValueError: broken"),
    ],
)
def test_a_rank_that_fails_ends_the_runs_of_its_machine(tmp_path: Path, fault: str, end: str, said: str) -> None:
    found = play(tmp_path, f"if run == '5' and rank == '1':\n        {fault}", runs=2)
    assert [run["end"] for run in found["1"]] == ["finished", end] and found["1"][1]["detail"] == said


def test_what_hangs_is_ended_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minder.edge.probes.replay._SPARE_S", 29.0)
    found = play(tmp_path, "time.sleep(60)", ranks=RANKS[:1])
    assert [run["end"] for run in found["0"]] == ["hang"]


def test_a_launcher_without_a_script_says_so() -> None:
    assert measure({"replay": ORDER}).state == "not_applicable"


@pytest.mark.parametrize(
    ("lines", "more", "expected"),
    [
        (None, {}, RankRun("crash", False)),
        ("begin\n1 a\n2 b\n", {}, RankRun("finished", True, ("a", "b"))),
        ("begin\n1 a\n", {"detail": "ended by signal 6"}, RankRun("crash", True, ("a",), "ended by signal 6")),
        ("begin\n1 a\n", {"ended": True}, RankRun("finished", True, ("a",))),
        ("begin\n1 a\n", {"late": True}, RankRun("hang", True, ("a",))),
        ("begin\nfail Timed out after 9 s\n", {}, RankRun("hang", True, (), "Timed out after 9 s")),
        ("begin\nnan step 1\n", {}, RankRun("nan", True, (), "step 1")),
        ("begin\n1 a\nend\n", {}, RankRun("finished", True, ("a",))),
    ],
)
def test_what_a_rank_wrote_says_how_its_run_ended(tmp_path: Path, lines: str | None, more: dict[str, Any], expected: RankRun) -> None:
    if lines is not None:
        (tmp_path / "run").write_text(lines)
    assert read_run(tmp_path / "run", 2, **more) == expected


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"group": ""}, "replay.group is ''"),
        ({"program": "/bin/sh"}, "replay.program is '/bin/sh': reference or script"),
        ({"ranks": []}, "replay.ranks must be a list"),
        ({"ranks": [{"RANK": "x", "WORLD_SIZE": "2"}]}, "each needs RANK and WORLD_SIZE"),
        ({"meetings": [{"generation": 4, "port": 29600}]}, "a script needs one for each of its 2 runs"),
        ({"meetings": [{"generation": 4, "port": 0}] * 2}, "replay.port is 0"),
        ({"parallelism": {"tensor": 0}}, "parallelism.tensor is 0"),
        ({"parallelism": {"slices": 2}}, "replay.parallelism: "),
        ({"steps": 0}, "replay.steps is 0: a whole number from 1"),
        ({"runs": True}, "replay.runs is True"),
    ],
)
def test_a_wrong_order_is_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError) as error:
        parse_replay({**ORDER, **changes})
    assert said in str(error.value) and "\n" not in str(error.value)


def test_an_order_of_a_replay_belongs_to_its_probe_and_to_a_launcher() -> None:
    probe = {"id": "replay", "sha256": find_program("replay").sha256, "replay": ORDER}
    assert parse_probes({"operation": "o", "probes": [probe]}).orders[0].replay == parse_replay(ORDER)
    for wrong in ({**probe, "id": "disk"}, {name: value for name, value in probe.items() if name != "replay"}):
        with pytest.raises(BadInputError, match="belongs to the probe replay"):
            parse_probes({"operation": "o", "probes": [wrong]})
    assert "replay" in OF_LAUNCHERS and "replay" not in PROBES


def test_an_agent_runs_none() -> None:
    probe = {"id": "replay", "sha256": find_program("replay").sha256, "replay": ORDER}
    answer = asyncio.run(Probing().ask(parse_probes({"operation": "o", "probes": [probe]}), "", 0.0))
    assert answer["state"] == "refused" and 'no probe "replay"' in answer["detail"]


def test_ranks_of_a_replay_get_what_workers_may_get() -> None:
    assert refused_ranks(RANKS, 2) == ""
    assert refused_ranks(RANKS, 1) == "it has 2 ranks here: this machine has 1 slots"
    assert "LD_PRELOAD is refused" in refused_ranks([{"LD_PRELOAD": "x.so"}], 2)


@pytest.mark.parametrize(("wanted", "good"), [("", True), ("3,7,4", True), ("3,7", False), ("a,b,c", False)])
def test_what_a_script_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, good: bool) -> None:
    monkeypatch.setenv("MINDER_REPLAY", wanted)
    monkeypatch.setenv("MINDER_REPLAY_FILE", str(tmp_path / "lines"))
    if not good:
        with pytest.raises(BadInputError, match="steps,seed,layers as numbers"):
            replay()
        return
    asked = replay()
    if not wanted:
        assert asked is None
        return
    assert asked is not None and (asked.steps, asked.seed, asked.layers) == (3, 7, 4)
    first = asked.note(1, b"abc")
    assert (tmp_path / "lines").read_text() == f"begin\n1 {first}\n" and asked.note(2, b"abd") != first
