"""A job on machines: groups in their blocks, spares beside them; and the files that say which block a machine is in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minder.cli import main
from minder.model.errors import BadInputError
from minder.model.topology import Parallelism
from minder.offline.placement.layout import place
from minder.offline.placement.network import expand_hosts, read_network

TREE = """
# three levels: four leaves, two spines, a core
SwitchName=leaf1 Nodes=n[01-04] LinkSpeed=100
SwitchName=leaf2 Nodes=n[05-08]
SwitchName=leaf3 Nodes=n[09-12]
SwitchName=leaf4 Nodes=n[13-16]
SwitchName=spine1 Switches=leaf[1-2]
SwitchName=spine2 Switches=leaf[3-4]
SwitchName=core Switches=spine[1-2]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "topology.conf"
    path.write_text(TREE)
    return path


def test_a_block_is_what_lies_below_one_spine(tree: Path) -> None:
    found = read_network(tree)
    assert (found.block_of["n03"], found.block_of["n13"], found.switch_of["n13"]) == ("spine1", "spine2", "leaf4")
    assert list(found.free()) == ["spine1", "spine2"] and found.free()["spine1"][0] == "n01"


def test_two_levels_and_the_block_plugin_and_labels_and_toml(tmp_path: Path) -> None:
    files = {
        "flat.conf": "SwitchName=s1 Nodes=a[1-2]\nSwitchName=s2 Nodes=a3\nSwitchName=root Switches=s[1-2]\n",
        "written.conf": 'SwitchName = s1  Nodes=\\\n  a[1-2] # two\nSWITCHNAME="s2" nodes = "a3"\nSwitchName=r Switches= s[1-2]\n',
        "block.conf": "BlockName=s1 Nodes=a[1-2]\nBlockName=s2 Nodes=a3\nBlockSizes=2\n",
        "nodes.json": json.dumps({"items": [{"metadata": {"name": f"a{n}", "labels": {"pod": f"s{1 + n // 3}"}}} for n in (1, 2, 3)]}),
        "job.toml": "".join(f'[[machines]]\nname = "a{n}"\nblock = "s{1 + n // 3}"\n' for n in (1, 2, 3)),
        "recording.toml": "".join(f'[topology.a{n}]\nswitch = "s{1 + n // 3}"\n' for n in (1, 2, 3)),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        assert read_network(tmp_path / name, "pod").free() == {"s1": ["a1", "a2"], "s2": ["a3"]}, name


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.conf", "NodeName=x\n", "line 1: neither SwitchName"),
        ("t.conf", "", "puts no machine into a block"),
        ("t.conf", "SwitchName=a Nodes=n1\n\nSwitchName=b Nodes=n[4-1]\n", 'line 3: "n[4-1]" is no list of nodes'),
        ("t.conf", "SwitchName=a Nodes=n[1-4\n", 'line 1: "n[1-4" is no list of nodes'),
        ("t.conf", "SwitchName=a Nodes=n[1-999999999]\n", 'line 1: "n[1-999999999]" is no list'),
        ("t.json", "[]", "kubectl get nodes"),
        ("t.json", '{"items": [{"metadata": {"name": "a"}}]}', "--label"),
        ("t.toml", "x = ", "is not TOML"),
        ("t.toml", "[[machines]]\nname = 'a'\n", 'block = "b1"'),
        ("t.conf", "SwitchName=s Nodes=n[a-b]\n", "is no list of nodes"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInputError) as caught:
        read_network(tmp_path / name)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_names_with_several_brackets() -> None:
    assert expand_hosts("r[1-2]n[08-10],x") == ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10", "x"]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from(["tp-dp-pp", "tp-pp-dp"]), st.sampled_from(["pp", "dp"]), st.integers(0, 2))
def test_groups_stay_in_as_many_blocks_as_was_solved_and_spares_are_free(
    pipeline: int, replicas: int, order: str, unit: str, spares: int
) -> None:
    free = {f"b{block}": [f"b{block}-{index}" for index in range(9)] for block in range(3)}
    parallelism = Parallelism(tensor=8, pipeline=pipeline, data=replicas, rank_order=order)
    found = place(parallelism, 8, free, unit=unit, spares=spares)
    assert len(set(found.machines)) == pipeline * replicas
    assert found.spread.get(unit, 1) == found.solution.spread
    reserved = {machine for machines in found.spares.values() for machine in machines}
    assert not reserved & set(found.machines)
    assert all(len(machines) == spares for machines in found.spares.values())
    assert set(found.spares) == ({found.block_of[machine] for machine in found.machines} if spares else set())


def test_the_command_prints_machines_and_spares(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "place", "--network", str(tree), "--data", "3", "--tensor", "8", "--pipeline", "4", "--spares", "1"]
    assert main([*words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["spread"]["pp"] == 2 and len(found["machines"]) == 12 and found["proven"]
    assert main([*words[:-2], "--data", "2"]) == 0
    assert "largest spread of a group, in blocks: dp 2, pp 1" in capsys.readouterr().out
    assert main([*words, "--data", "9"]) == 2
    assert "need 36, and 14 are free" in capsys.readouterr().err


def test_the_spares_of_a_job_are_counted_by_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["m0", "m1", "m2", "s0"]
    blocks = dict(zip(names, ("b1", "b1", "b2", "b1"), strict=True))
    text = "".join(f'[[machines]]\nname = "{name}"\nblock = "{blocks[name]}"\nstandby = {str(name == "s0").lower()}\n' for name in names)
    (tmp_path / "job.toml").write_text(f'name = "llm"\n{text}')
    assert main(["plan", "spares", "--config", str(tmp_path / "job.toml"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["blocks"]
    assert [(row["block"], row["machines"], row["standbys"], row["short"]) for row in found] == [("b1", 2, ["s0"], 0), ("b2", 1, [], 1)]
