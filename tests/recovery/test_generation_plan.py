"""Which rank runs where after an eviction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minder.act.recovery.generation_plan import GenerationPlan, machine_order, replace_machines
from minder.model.errors import RecoveryError

JOBS = st.integers(1, 6).flatmap(lambda machines: st.tuples(st.just(machines), st.integers(1, 3), st.sets(st.integers(0, machines - 1))))


@given(JOBS)
def test_only_the_evicted_machines_ranks_move_and_each_as_a_whole(job: tuple[int, int, set[int]]) -> None:
    machines, ranks, gone = job
    before = {rank: f"m{rank // ranks}" for rank in range(machines * ranks)}
    evicted = [f"m{index}" for index in sorted(gone)]
    standbys = [f"s{index}" for index in range(len(evicted))]
    after = replace_machines(before, evicted, standbys)
    assert sorted(after) == sorted(before)
    for rank, machine in before.items():
        assert after[rank] == (standbys[evicted.index(machine)] if machine in evicted else machine)


def test_too_few_standbys_place_nothing() -> None:
    with pytest.raises(RecoveryError, match="2 machines leave but only 1"):
        replace_machines({0: "a", 1: "b"}, ["a", "b"], ["s0"])


def plan(rank_machine: dict[int, str], **more: object) -> GenerationPlan:
    return GenerationPlan("llm", 3, rank_machine, "10.0.0.254", 29500, "evict-1", {"NCCL_DEBUG": "WARN"}, 2, **more)  # type: ignore[arg-type]


def test_every_worker_gets_the_environment_of_torchrun_and_its_own_rank() -> None:
    found = plan({0: "a", 1: "a", 2: "s", 3: "s"})
    body = found.request_for("s", 2.0)
    assert (body["generation"], body["world_size"], body["desired"]) == (3, 4, "run")
    first, second = (item["env"] for item in body["assignments"])
    assert (first["RANK"], first["LOCAL_RANK"], first["LOCAL_WORLD_SIZE"], first["GROUP_RANK"], first["WORLD_SIZE"]) == (
        "2",
        "0",
        "2",
        "1",
        "4",
    )
    assert second["RANK"] == "3" and second["LOCAL_RANK"] == "1"
    assert first["MASTER_ADDR"] == "10.0.0.254" and first["MASTER_PORT"] == "29500"
    assert first["TORCHELASTIC_USE_AGENT_STORE"] == "True" and first["TORCHELASTIC_RESTART_COUNT"] == "2"
    assert first["MINDER_GENERATION"] == "3" and first["NCCL_DEBUG"] == "WARN"


def test_one_operation_in_two_generations_is_two_requests_to_a_launcher() -> None:
    other = GenerationPlan("llm", 4, {0: "a"}, "10.0.0.254", 29500, "evict-1")
    assert plan({0: "a"}).request_for("a", 2.0)["operation_id"] != other.request_for("a", 2.0)["operation_id"]


def test_machines_come_in_the_order_of_their_first_rank() -> None:
    assert machine_order({3: "a", 0: "c", 1: "b", 2: "c"}) == ("c", "b", "a")


def test_what_is_one_machines_own_reaches_its_workers_only() -> None:
    found = plan({0: "a", 1: "s"}, machine_environment={"s": {"MINDER_DOMAIN": '{"rack": "r1"}'}})
    assert found.request_for("s", 2.0)["assignments"][0]["env"]["MINDER_DOMAIN"] == '{"rack": "r1"}'
    assert "MINDER_DOMAIN" not in found.request_for("a", 2.0)["assignments"][0]["env"]
