"""`Checkpointer("memory")` in one process, with a real cache beside it: what is saved is what comes back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.edge.cache.client import SOCKET_VARIABLE
from minder.model.errors import CheckpointError
from tests.cache.conftest import Running

torch: Any
Checkpointer: Any
pytestmark = pytest.mark.lab  # torch takes seconds to load


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    global torch, Checkpointer
    torch = pytest.importorskip("torch")
    from minder import Checkpointer


@pytest.fixture
def cache(start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> Running:
    for name in ("MINDER_GENERATION", "TORCHELASTIC_RESTART_COUNT", "MINDER_PARALLELISM"):
        monkeypatch.delenv(name, raising=False)
    running = start("m0")
    monkeypatch.setenv(SOCKET_VARIABLE, str(running.settings.socket_path))
    return running


def _state(seed: int, steps: int = 0, **options: Any) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2))
    state = {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.01, **options)}
    for _ in range(steps):
        _train(state)
    return state


def _train(state: dict[str, Any]) -> float:
    loss = state["model"](torch.randn(8, 6)).square().sum()
    state["optimizer"].zero_grad()
    loss.backward()
    state["optimizer"].step()
    return float(loss.detach())


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}, {"amsgrad": True}], ids=str)
def test_training_goes_on_exactly_as_it_would_have(cache: Running, options: dict[str, Any]) -> None:
    state = _state(1, steps=3, **options)
    checkpoints = Checkpointer("memory")
    checkpoints.save(3, {**state, "epoch": 2, "note": {"words": ["a", ("b", 3)]}, "average": torch.arange(4.0)[::2]})
    expected = ([_train(state) for _ in range(4)], random.random())
    assert checkpoints.wait() is None

    fresh = {**_state(2, **options), "epoch": 0, "note": None, "average": torch.zeros(2)}
    random.seed(0)
    assert Checkpointer("memory").load_latest(fresh) == 3
    assert (fresh["epoch"], fresh["note"], fresh["average"].tolist()) == (2, {"words": ["a", ("b", 3)]}, [0.0, 2.0])
    assert ([_train(fresh) for _ in range(4)], random.random()) == expected


def test_a_loop_may_offer_each_step_where_every_third_is_saved(cache: Running, tmp_path: Path) -> None:
    state, checkpoints = _state(1), Checkpointer("memory", every=3)
    wanted: list[Any] = []
    for step in range(1, 9):
        _train(state)
        checkpoints.save(step, state)
        if step == 6:
            wanted = [parameter.detach().clone() for parameter in state["model"].parameters()]
    assert checkpoints.wait() is None and [step for step in range(9) if checkpoints.is_due(step)] == [0, 3, 6]
    fresh = _state(2)
    assert Checkpointer("memory").load_latest(fresh) == 6
    assert all(torch.equal(a, b) for a, b in zip(wanted, fresh["model"].parameters(), strict=True))
    with pytest.raises(CheckpointError, match="give a multiple of every=3"):
        Checkpointer("memory", every=3, flush_dir=tmp_path, flush_every=100)
    with pytest.raises(CheckpointError, match="every=0"):
        Checkpointer("memory", every=0)


def test_every_step_while_training_goes_on_is_that_steps_state(cache: Running) -> None:
    state, checkpoints = _state(1), Checkpointer("memory")
    wanted: dict[int, list[Any]] = {}
    for step in range(1, 9):
        _train(state)
        wanted[step] = [parameter.detach().clone() for parameter in state["model"].parameters()]
        checkpoints.save(step, state)
    assert checkpoints.wait() is None
    fresh = _state(2)
    assert Checkpointer("memory").load_latest(fresh) == 8
    assert all(torch.equal(a, b) for a, b in zip(wanted[8], fresh["model"].parameters(), strict=True))
    assert len(cache.held) == 1  # what is older than the committed step goes


def test_an_optimisers_step_waits_for_the_copy_and_the_forward_does_not(cache: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from minder.edge.checkpoint.copying import CopyOut

    held, finish = threading.Event(), CopyOut.finish
    monkeypatch.setattr(CopyOut, "finish", lambda copy: (held.wait(10.0), finish(copy))[1])
    state, checkpoints = _state(1, steps=1), Checkpointer("memory")
    before = state["model"][0].weight.detach().clone()
    checkpoints.save(1, state)
    loss = state["model"](torch.randn(8, 6)).sum()  # goes on while nothing is copied yet
    loss.backward()
    stepped = threading.Thread(target=state["optimizer"].step)
    stepped.start()
    stepped.join(0.1)
    assert stepped.is_alive()
    held.set()
    stepped.join(10.0)
    assert checkpoints.wait() is None
    fresh = _state(2)
    Checkpointer("memory").load_latest(fresh)
    assert torch.equal(fresh["model"][0].weight, before)


def test_an_optimisers_step_does_not_pay_for_the_map_of_a_save_that_is_done(cache: Running) -> None:
    state, checkpoints = _state(1, steps=1), Checkpointer("memory")
    checkpoints.save(1, state)
    assert checkpoints.wait() is None
    end_s = time.monotonic() + 5.0
    while (is_mapped := str(cache.settings.folder) in Path("/proc/self/maps").read_text()) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert not is_mapped


def test_a_state_that_changes_behind_the_copys_back_is_not_saved(cache: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from minder.edge.checkpoint.copying import CopyOut

    finish, state = CopyOut.finish, _state(1, steps=1)

    def change_first(copy: Any) -> None:
        with torch.no_grad():
            state["model"][0].weight.zero_()
        finish(copy)

    monkeypatch.setattr(CopyOut, "finish", change_first)
    checkpoints = Checkpointer("memory")
    checkpoints.save(1, state)
    assert "changed outside of an optimiser's step" in str(checkpoints.wait())
    assert cache.held == set() and not list(cache.settings.folder.glob("step-*"))
    at_once = Checkpointer("memory", overlap=False)
    at_once.save(2, state)
    assert at_once.wait() is None


def test_a_flipped_bit_is_found_and_an_older_step_or_nothing_is_taken(
    cache: Running, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    checkpoints = Checkpointer("memory", flush_dir=tmp_path / "disk", flush_every=2)
    state = _state(1)
    for step in (1, 2, 3):
        _train(state)
        checkpoints.save(step, state)
    assert checkpoints.wait() is None
    assert cache.cache._flushing is not None
    cache.cache._flushing.join(10.0)
    (path,) = cache.settings.folder.glob("step-000000003*.body")
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert checkpoints.load_latest(_state(2)) == 2  # from the disk
    assert "is damaged" in caplog.text
    for disk in (tmp_path / "disk").glob("*.body"):
        disk.write_bytes(b"!" * disk.stat().st_size)
    with pytest.raises(CheckpointError, match="cannot be loaded: a rank's copies are all lost or damaged"):
        checkpoints.load_latest(_state(2))


def _train_until(checkpoints: Any, state: dict[str, Any], last: int, begin: int = 0) -> dict[int, list[Any]]:
    """Each step is saved; the parameters after it."""
    seen = {}
    for step in range(begin + 1, last + 1):
        torch.manual_seed(step)
        _train(state)
        checkpoints.save(step, state)
        assert checkpoints.wait() is None
        seen[step] = [parameter.detach().clone() for parameter in state["model"].parameters()]
    return seen


def test_a_run_goes_back_in_memory_to_before_a_batch_that_it_leaves_out(cache: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _train_until(Checkpointer("memory", ring=3), _state(1), 7)
    assert {name.step for name in cache.held} == {5, 6, 7}
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "6")  # step 7 consumed it
    state = _state(2)
    checkpoints = Checkpointer("memory", ring=3)
    assert checkpoints.load_latest(state) == 6
    assert all(torch.equal(a, b) for a, b in zip(seen[6], state["model"].parameters(), strict=True))
    _train_until(checkpoints, state, 8, begin=6)
    assert {(name.step, name.generation) for name in cache.held} == {(6, 0), (7, 1), (8, 1)}, "step 7 of the run that was left is gone"
    assert Checkpointer("memory", ring=3).load_latest(_state(3)) == 8
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "")
    assert Checkpointer("memory", ring=3).load_latest(_state(3)) == 6, "taken back: what left it out is no state of this run"
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "0")
    with pytest.raises(CheckpointError, match="have learned from other batches than this run, which leaves out 0"):
        Checkpointer("memory", ring=3).load_latest(_state(3))


def test_a_version_of_the_code_goes_on_from_the_newest_step_that_it_reads(cache: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Checkpointer("memory", ring=2)
    _train_until(first, _state(1), 3)
    monkeypatch.setenv("MINDER_UPDATE", "4")
    second, state = Checkpointer("memory", ring=2), _state(2)
    assert second.load_latest(state) == 3
    _train_until(second, state, 4, begin=3)
    monkeypatch.setenv("MINDER_UPDATE", "5")
    monkeypatch.setenv("MINDER_CHECKPOINTS_NOT_OF", "4")
    assert Checkpointer("memory", ring=2).load_latest(_state(3)) == 3


def test_every_nth_step_stays_on_the_disk_beside_the_newest(cache: Running, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    checkpoints = Checkpointer("memory", flush_dir=disk, flush_every=1, keep_every=4)
    _train_until(checkpoints, _state(1), 10)
    assert cache.cache._flushing is not None
    cache.cache._flushing.join(10.0)
    assert sorted(int(path.name[5:14]) for path in disk.glob("*.head")) == [4, 8, 9, 10]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ring": 0}, "ring=0: at least the newest step stays"),
        ({"keep": 2}, "keep=2: at least 3 steps"),
        ({"flush_every": 10, "keep_every": 25}, "keep_every=25: give a multiple of flush_every=10"),
        ({"keep_every": -100}, "keep_every=-100"),
        ({"once_per": "rakc"}, "once_per='rakc': the job's machines name machine; give one of these"),
    ],
)
def test_what_cannot_be_kept_is_refused(cache: Running, options: dict[str, Any], why: str) -> None:
    with pytest.raises(CheckpointError, match=why):
        Checkpointer("memory", **options)


def test_a_disk_whose_records_cannot_be_read_is_no_beginning(cache: Running, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    _train_until(Checkpointer("memory", flush_dir=disk, flush_every=1), _state(1), 2)
    assert cache.cache._flushing is not None
    cache.cache._flushing.join(10.0)
    cache.cache.memory.drop(list(cache.cache.memory.records))
    (cache.settings.folder / "members.json").unlink()
    again = cache.again()  # all memory is lost
    for head in disk.glob("*.head"):
        head.write_bytes(b"!" + head.read_bytes()[1:])
    with pytest.raises(CheckpointError, match=r"what was saved cannot be read: step-.* is damaged"):
        Checkpointer("memory", flush_dir=disk).load_latest(_state(2))
    again.stop()


def test_a_record_of_another_model_is_refused_with_a_reason(cache: Running) -> None:
    checkpoints = Checkpointer("memory")
    checkpoints.save(1, {"model": torch.nn.Linear(3, 3)})
    with pytest.raises(CheckpointError, match=r"does not fit: model.weight was torch.float32 \(3, 3\)"):
        checkpoints.load_latest({"model": torch.nn.Linear(4, 3)})
    with pytest.raises(CheckpointError, match='it has no "optimizer"'):
        checkpoints.load_latest({"optimizer": None})


def test_a_run_that_leaves_a_batch_out_goes_back_to_before_it(cache: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Batch 3 is that of step 4. Memory has steps 3 and later; what flush_dir has is older."""
    options = {"flush_dir": tmp_path / "disk", "flush_every": 2}
    checkpoints = Checkpointer("memory", **options)
    for step in (2, 3):
        checkpoints.save(step, {"step": step})
        assert checkpoints.wait() is None
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "3")
    found = {"step": 0}
    again = Checkpointer("memory", **options)
    assert (again.load_latest(found), found["step"]) == (3, 3), "made without it either way"
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "2")
    assert Checkpointer("memory", **options).load_latest(found) == 2, "only the disk has a step from before batch 2"
    again = Checkpointer("memory", **options)
    again.save(3, {"step": 30})
    assert again.wait() is None
    assert (Checkpointer("memory", **options).load_latest(found), found["step"]) == (3, 30)
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "1")
    with pytest.raises(CheckpointError, match=r"all steps that are kept have learned .* leaves out 1, .*minder job skip JOB --undo"):
        Checkpointer("memory", **options).load_latest(found)


@pytest.mark.parametrize("arrives", [True, False], ids=["it arrives", "the disk hangs"])
def test_only_a_step_that_nothing_else_has_is_waited_for_on_its_way_to_the_disk(
    cache: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arrives: bool
) -> None:
    """Step 2 lies on the disk; memory has step 5; step 4 is being written."""
    from minder.edge.cache.cache import _Flush
    from minder.edge.checkpoint import recovering

    monkeypatch.setattr(recovering, "_FLUSH_S", 30.0 if arrives else 0.2)
    options = {"flush_dir": tmp_path / "disk", "flush_every": 2}
    checkpoints, goes_on, write, hello, asked = Checkpointer("memory", **options), threading.Event(), _Flush.write, cache.cache.hello, []

    def look(flush_dir: str = "", wait_s: float = 0.0) -> Any:
        asked.append(wait_s)
        if wait_s and arrives:
            threading.Timer(0.1, goes_on.set).start()
        return hello(flush_dir, wait_s)

    monkeypatch.setattr(cache.cache, "hello", look)
    for step in (2, 4, 5):
        checkpoints.save(step, {"step": step})
        assert checkpoints.wait() is None
        if step == 2:
            assert cache.cache._flushing is not None
            cache.cache._flushing.join(10.0)
            monkeypatch.setattr(_Flush, "write", lambda flush: (goes_on.wait(30.0), write(flush))[1])
    found = {"step": 0}
    assert Checkpointer("memory", **options).load_latest(found) == 5 and not any(asked), "memory has a newer one"
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "4")  # that of step 5
    step = 4 if arrives else 2
    assert (Checkpointer("memory", **options).load_latest(found), found["step"]) == (step, step)
    for path in (tmp_path / "disk").glob("step-000000002-*"):
        path.unlink()
    if not arrives:
        with pytest.raises(CheckpointError, match="step 4 is on its way to the disk and did not arrive within 0 s, and there is no other"):
            Checkpointer("memory", **options).load_latest(found)
    goes_on.set()


def test_an_optimiser_gets_its_state_while_bodies_are_read(cache: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from minder.edge.checkpoint import recovering

    saved, checkpoints = _state(1, steps=3), Checkpointer("memory")
    checkpoints.save(3, saved)
    assert checkpoints.wait() is None
    fresh, has_state, at_check = _state(2), threading.Event(), []
    fresh["optimizer"].register_step_post_hook(lambda *unused: has_state.set())
    check = recovering.wrong_chunk

    def check_late(*arguments: Any) -> int | None:
        at_check.append(has_state.wait(5.0))
        return check(*arguments)

    monkeypatch.setattr(recovering, "wrong_chunk", check_late)
    assert Checkpointer("memory").load_latest(fresh) == 3
    assert at_check == [True]
    assert str(fresh["optimizer"].state_dict()) == str(saved["optimizer"].state_dict())


def test_the_beginning_of_a_job_loads_nothing(cache: Running) -> None:
    assert Checkpointer("memory").load_latest(_state(1)) is None


def test_what_cannot_work_says_so_in_one_line(cache: Running, monkeypatch: pytest.MonkeyPatch, start: Callable[..., Running]) -> None:
    with pytest.raises(CheckpointError, match="no plain value"):
        Checkpointer("memory").save(1, {"hook": lambda: None})
    monkeypatch.setenv("MINDER_PARALLELISM", '{"tensor": 2}')
    with pytest.raises(CheckpointError, match="parallelism has 2 ranks and the job 1"):
        Checkpointer("memory")
    monkeypatch.delenv("MINDER_PARALLELISM")
    for option in ({"flush_dir": "/tmp/y"}, {"ring": 2}, {"keep_every": 100}):
        with pytest.raises(CheckpointError, match="is a folder already"):
            Checkpointer("/tmp/x", **option)
    small = start("m1", max_bytes=1000)
    monkeypatch.setenv(SOCKET_VARIABLE, str(small.settings.socket_path))
    with pytest.raises(CheckpointError, match="holds 1000 bytes, and two steps with their backups need"):
        Checkpointer("memory").save(1, _state(1, steps=1))
    monkeypatch.delenv(SOCKET_VARIABLE)
    with pytest.raises(CheckpointError, match="finds no cache on this machine"):
        Checkpointer("memory")


def test_a_cache_that_hangs_or_is_gone_costs_saves_and_stops_no_step(cache: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from minder.edge.checkpoint import memory_tier

    monkeypatch.setattr(memory_tier, "_LONGEST_WAIT_S", 0.2)
    state, checkpoints = _state(1, steps=1), Checkpointer("memory")
    checkpoints.save(1, state)
    assert checkpoints.wait() is None
    hangs, keep = threading.Event(), cache.cache.keep
    monkeypatch.setattr(cache.cache, "keep", lambda name, wait_s: (hangs.wait(30.0), keep(name, wait_s))[1])
    for step in range(2, 9):
        checkpoints.save(step, state)  # two are in flight for ever, the others are left out: none of them waits for long
    hangs.set()
    assert "still in flight" in str(checkpoints.wait())
    assert cache.cache.members.committed == (3, 0)
    cache.stop()
    checkpoints.save(9, state)
    assert "does not answer" in str(checkpoints.wait())
    again = cache.again()
    checkpoints.save(10, state)
    assert checkpoints.wait() is None
    again.stop()


def test_the_lines_of_the_page_save_and_load(cache: Running, tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/state.md").read_text()
    lines = page.split("```python\n")[1].split("```")[0].replace("/local/llm-70b", str(tmp_path / "disk"))
    found: dict[str, Any] = {}
    for expected in (0, 200):
        begin, _, end = lines.partition("checkpoints.save")
        exec(begin, found := _state(expected + 1, steps=1) | found | {})
        assert found["step"] == expected
        exec("checkpoints.save" + end.replace("step", "200"), found)
        assert found["checkpoints"].wait() is None


def test_a_cache_that_starts_again_in_the_middle_costs_nothing(cache: Running) -> None:
    state, checkpoints = _state(1, steps=1), Checkpointer("memory")
    checkpoints.save(1, state)
    assert checkpoints.wait() is None
    again = cache.again()
    checkpoints.save(2, state)
    assert checkpoints.wait() is None
    assert Checkpointer("memory").load_latest(_state(2)) == 2
    again.stop()


def test_the_lines_of_the_page_about_a_rollback_keep_what_they_say(cache: Running, tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/state.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("checkpoints = ") and "ring=" in line]
    found: dict[str, Any] = {"Checkpointer": Checkpointer}
    exec(line.replace("/shared/llm-70b", str(tmp_path / "disk")), found)
    _train_until(found["checkpoints"], _state(1), 6)
    assert {name.step for name in cache.held} == {3, 4, 5, 6}
