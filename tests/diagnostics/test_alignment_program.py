"""The alignment program on real tensors: a bit that is flipped in one product is found, at its coordinate."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minder.diagnose.diagnostics.alignment import judge_alignment, read_run

torch = pytest.importorskip("torch")

from minder.edge.probes import alignment  # noqa: E402
from minder.edge.probes.alignment_model import SIZES, Coordinate, ReferenceStep, Row  # noqa: E402
from minder.edge.probes.program import document  # noqa: E402

TINY = SIZES["tiny"]


@pytest.fixture(autouse=True)
def own_settings() -> Iterator[None]:
    """What the program sets for its whole process ends with the test."""
    threads = torch.get_num_threads()
    alignment.be_deterministic()
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


def flip(tensor: Any, index: int = 5) -> Any:
    """The tensor with the lowest bit of one element's mantissa flipped."""
    bits = tensor.detach().clone().contiguous().view(torch.int32)
    bits.view(-1)[index] ^= 1
    return tensor + (bits.view(torch.float32) - tensor.detach())


class Flipping(ReferenceStep):
    """The product of that name on that shard has one wrong bit, going forward or coming back."""

    where: tuple[Coordinate, str] = ((1, 0, 1), "stage0.layer0.attention.qkv")
    backward = False

    def matmul(self, at: Coordinate, name: str, left: Any, right: Any) -> Any:
        product = super().matmul(at, name, left, right)
        if (at, name) != self.where:
            return product
        if self.backward:
            product.register_hook(flip)
            return product
        return flip(product)


def document_of(options: dict[str, Any], step: Any = None) -> dict[str, Any]:
    return document(alignment.PROBE, alignment.measure(options, step))


def rows(step: type[ReferenceStep], layout: str = "dense") -> list[Row]:
    return step(layout, TINY).run()


def first_wrong(wrong: list[Row], right: list[Row]) -> Row:
    return next(one for one, other in zip(wrong, right, strict=True) if one != other)


@pytest.mark.parametrize("layout", ["experts", pytest.param("dense", marks=pytest.mark.release)])
def test_two_runs_of_a_step_are_equal_to_the_last_bit(layout: str) -> None:
    assert rows(ReferenceStep, layout) == rows(ReferenceStep, layout)


def test_the_layouts_have_eight_coordinates_and_every_parameter_is_updated_once_a_shard() -> None:
    for layout in alignment.LAYOUTS:
        found = rows(ReferenceStep, layout)
        assert len({coordinate for coordinate, _, _ in found}) == 8
        assert len({(coordinate, tensor) for coordinate, tensor, _ in found}) == len(found)
        assert all(sha256 for _, _, sha256 in found)
        updated = [tensor for _, tensor, _ in found if tensor.startswith("updated ")]
        assert len(updated) == len([tensor for _, tensor, _ in found if tensor.startswith("reduced ")]) > 20


def test_replicas_hold_equal_parameters_after_the_step() -> None:
    for layout in alignment.LAYOUTS:
        found = {(at, tensor): sha256 for at, tensor, sha256 in rows(ReferenceStep, layout) if tensor.startswith("updated ")}
        assert all(found[at[:-1] + "1", tensor] == sha256 for (at, tensor), sha256 in found.items())


@pytest.mark.parametrize("at", [(0, 0, 0), (1, 0, 1), (0, 1, 0), (1, 1, 1)])
@pytest.mark.parametrize("part", ["attention.qkv", "attention.scores", "attention.partial", "network.up", "network.partial"])
def test_a_flipped_bit_going_forward_is_found_at_its_shard(at: Coordinate, part: str) -> None:
    name = f"stage{at[1]}.layer0.{part}"
    coordinate, tensor, _ = first_wrong(rows(type("F", (Flipping,), {"where": (at, name)})), rows(ReferenceStep))
    assert (coordinate, tensor) == (f"dense tp{at[0]} pp{at[1]} dp{at[2]}", f"forward {name}")


def test_a_flipped_bit_coming_back_is_found_at_its_shard_too() -> None:
    step = type("B", (Flipping,), {"backward": True, "where": ((1, 1, 0), "stage1.layer0.network.partial")})
    coordinate, tensor, _ = first_wrong(rows(step), rows(ReferenceStep))
    assert coordinate == "dense tp1 pp1 dp0"
    assert tensor.startswith("backward stage1.layer0.network.")


def test_a_flipped_bit_of_an_expert_names_the_shard_that_holds_the_expert() -> None:
    step = type("E", (Flipping,), {"where": ((1, 0, 0), "stage0.layer0.network.expert2.up")})
    coordinate, tensor, _ = first_wrong(rows(step, "experts"), rows(ReferenceStep, "experts"))
    assert (coordinate, tensor) == ("experts ep1 pp0 dp0", "forward stage0.layer0.network.expert2.up")


def test_a_machine_whose_two_runs_differ_has_failed_by_itself() -> None:
    made = []

    def make(*given: Any) -> ReferenceStep:
        made.append((Flipping if len(made) == 2 else ReferenceStep)(*given))
        return made[-1]

    found = document_of({"size": "tiny"}, make)
    assert found["state"] == "failed"
    assert found["data"]["first"][0] == "dense tp1 pp0 dp1"
    assert read_run("a", found).differs is not None


def test_the_programs_of_three_machines_are_judged_and_the_one_that_flips_a_bit_is_named() -> None:
    documents = {name: document_of({"size": "tiny", "repeats": 1}, step) for name, step in (("a", None), ("b", Flipping), ("c", None))}
    verdicts = judge_alignment([read_run(name, document) for name, document in documents.items()])
    assert {name: verdict.state for name, verdict in verdicts.items()} == {"a": "pass", "b": "fail", "c": "pass"}
    assert verdicts["b"].reason.endswith("first at dense tp1 pp0 dp1: forward stage0.layer0.attention.qkv")


BAD_MACHINE = """
    import sys
    sys.path.insert(0, {folder!r})
    from test_alignment_program import Flipping
    from minder.edge.probes.alignment import main
    main(make_step=Flipping)
"""


@pytest.mark.lab
def test_of_two_processes_one_flips_a_bit_and_the_judgement_names_machine_and_coordinate() -> None:
    bad = textwrap.dedent(BAD_MACHINE.format(folder=str(Path(__file__).parent)))
    words = ["--json", "--options", '{"size": "tiny"}']
    programs = {"a": ["-m", "minder.edge.probes.alignment"], "b": ["-c", bad]}
    children = {name: subprocess.Popen([sys.executable, *program, *words], stdout=subprocess.PIPE) for name, program in programs.items()}
    runs = [read_run(name, json.loads(child.communicate(timeout=120)[0])) for name, child in children.items()]
    assert {verdict.state for verdict in judge_alignment(runs).values()} == {"not_judged"}
    past = {"b": [replace(runs[0], machine="b")]}
    assert {name: verdict.state for name, verdict in judge_alignment(runs, past).items()} == {"a": "not_judged", "b": "fail"}
    verdicts = judge_alignment([*runs, read_run("c", document_of({"size": "tiny"}))])
    assert {name: verdict.state for name, verdict in verdicts.items()} == {"a": "pass", "b": "fail", "c": "pass"}
    assert verdicts["b"].first is not None
    assert (verdicts["b"].first.coordinate, verdicts["b"].first.tensor) == ("dense tp1 pp0 dp1", "forward stage0.layer0.attention.qkv")
