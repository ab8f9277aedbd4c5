"""The heat map of a job's traced steps on its page, and a rank's neighbours in each parallel dimension."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.model.evidence import StepStudy, StudiedWorker
from minder.model.topology import Parallelism
from minder.wire.codec import to_json
from serve.pages.step_map import StepMap, draw_steps
from serve.state import Service
from tests.serve.browsing import send_token, token_of

LAYOUT = Parallelism(tensor=2, pipeline=2, data=3)
PLACED = {rank: f"m{rank // 2}" for rank in range(12)}


def study(**changes: Any) -> dict[str, Any]:
    workers = []
    for stage, dp in ((stage, dp) for stage in range(2) for dp in range(3)):
        slow = (dp, stage) == (1, 0)
        forward_s, against = (0.4, 2.0) if slow else (0.2, 1.0)
        workers.append(StudiedWorker(dp, stage, 2 * dp + 6 * stage, f"m{dp + 3 * stage}", forward_s, 0.4, 1.0, against))
    why = "dp rank 1 of stage 0 <b>computes</b> long"
    found = StepStudy(1_772_431_200.0, "worker", why, 8, 10, 80, slowdown=1.5, trusted=True, blamed=("m1",), workers=tuple(workers))
    return {"job": "llm", "generation": 2, **to_json(found), **changes}


def drawn(found: dict[str, Any] | None, rank: int | None = None, layout: Parallelism | None = LAYOUT, generation: int = 2) -> StepMap:
    steps = draw_steps(found, generation, layout, PLACED, rank)
    assert steps is not None
    return steps


def test_each_worker_is_a_cell_by_stage_and_data_parallel_rank() -> None:
    forward, backward = drawn(study()).maps
    assert (forward.title, backward.title, forward.columns) == ("Forward", "Backward", (0, 1, 2))
    cells = {(stage, cell.rank): cell for stage, row in forward.rows for cell in row if cell is not None}
    assert {key: cell.level for key, cell in cells.items() if cell.level != "s0"} == {(0, 2): "s3"}
    assert cells[0, 2].blamed and cells[0, 2].times == pytest.approx(2.0) and cells[0, 2].machine == "m1"
    assert all(cell is not None and cell.level == "s0" for _, row in backward.rows for cell in row)


def test_a_rank_has_neighbours_in_each_parallel_dimension() -> None:
    steps = drawn(study(), rank=2)
    assert steps.machine == "m1"
    found = {group.axis: [(rank, machine) for rank, machine, _, _ in group.others] for group in steps.neighbours}
    assert found == {
        "tensor rank": [(2, "m1"), (3, "m1")],
        "pipeline stage": [(2, "m1"), (8, "m4")],
        "data-parallel rank": [(0, "m0"), (2, "m1"), (4, "m2")],
    }
    assert steps.cell == 2 and drawn(study(), rank=3).cell == 2, "the cell of a rank is that of the worker which reports for it"
    (tensor, *_) = steps.neighbours
    assert [forward for _, _, forward, _ in tensor.others] == [pytest.approx(2.0)] * 2, "a tensor-parallel rank's times are its worker's"


def test_ranks_that_share_experts_are_neighbours_too() -> None:
    workers = tuple(StudiedWorker(dp, 0, dp, f"m{dp}", 0.2, 0.4, 1.0, 1.0) for dp in range(4))
    groups = drawn(study(workers=to_json(workers), blamed=[]), 3, Parallelism(data=4, expert=2)).neighbours
    assert {group.axis: [rank for rank, *_ in group.others] for group in groups} == {
        "data-parallel rank": [0, 1, 2, 3],
        "expert rank": [2, 3],
    }


def test_without_the_jobs_layout_the_workers_say_where_they_stand() -> None:
    for layout in (None, Parallelism(tensor=12)):
        found = {group.axis: [rank for rank, *_ in group.others] for group in drawn(study(), 8, layout).neighbours}
        assert found == {"pipeline stage": [2, 8], "data-parallel rank": [6, 8, 10]}
        assert drawn(study(), 3, layout).neighbours == ()


def test_of_many_workers_the_worst_columns_are_drawn_and_the_others_counted() -> None:
    workers = tuple(StudiedWorker(dp, 0, dp, f"m{dp}", 0.2 + (dp == 199), 0.4, 1.0, 1.0) for dp in range(200))
    (forward, _) = drawn(study(workers=to_json(workers), blamed=[])).maps
    assert len(forward.columns) == 64 and 199 in forward.columns and forward.undrawn == 136


def test_of_many_neighbours_the_rank_itself_and_the_slowest_are_drawn() -> None:
    workers = tuple(StudiedWorker(dp, 0, dp, f"m{dp}", 0.2 + (dp == 199), 0.4, 1.0, 1.0) for dp in range(200))
    (group,) = drawn(study(workers=to_json(workers), blamed=[]), 150, Parallelism(data=200)).neighbours
    ranks = [rank for rank, *_ in group.others]
    assert {150, 199} <= set(ranks) and ranks == sorted(ranks) and (len(ranks), group.undrawn) == (64, 136)


def test_a_study_of_an_earlier_generation_says_so_and_names_no_machine_of_now() -> None:
    steps = drawn(study(), 3, generation=3)
    assert steps.stale and all(machine is None or machine.startswith("m") for group in steps.neighbours for _, machine, *_ in group.others)


def test_what_is_no_study_is_no_map() -> None:
    assert draw_steps(None, 2, LAYOUT, PLACED, None) is None
    assert draw_steps({"job": "llm", "cause": "worker", "time_s": "x"}, 2, LAYOUT, PLACED, None) is None
    steps = drawn(study(workers=[], cause="not judged", why="dp rank 0 of stage 1 reported no traced step"))
    assert steps.maps == () and not steps.study.judged


def test_the_jobs_page_shows_the_map_and_a_rank_that_was_chosen(http: httpx.Client, tmp_path: Path, service: Service) -> None:
    assert send_token(http, token_of(service)).status_code == 303

    def page(path: str) -> str:
        answer = http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    service.settings.status_files["llm"] = tmp_path / "status.json"
    (tmp_path / "status.json").write_text(json.dumps({"job": "llm", "now_s": 1.0}))
    assert "Traced steps" not in page("/jobs/llm")
    (tmp_path / "whatif.json").write_text(json.dumps(study()))
    text = page("/jobs/llm?rank=2")
    assert "Traced steps" in text and "1.50 times the ideal one" in text and "&lt;b&gt;computes" in text
    assert 'aria-label="rank 2 on m1: forward 0.4 s, 2.00 times the median, named as slow" aria-current="true"' in text
    assert "Along the pipeline stage" in text and 'href="?by=pp&amp;rank=8#rank-title"' in text
    assert 'hx-get="/jobs/llm/now?by=pp&amp;rank=2"' in text
    (tmp_path / "whatif.json").write_text(json.dumps(study(workers=[], cause="not judged", why="no rank 3")))
    assert "not judged" in page("/jobs/llm") and "no rank 3" in page("/jobs/llm")
    (tmp_path / "whatif.json").write_text(json.dumps(study(job="another")))
    assert "Traced steps" not in page("/jobs/llm")
