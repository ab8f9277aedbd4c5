from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minder.edge.checkpoint.manifest import complete_checkpoints
from minder.model.errors import CheckpointError

torch: Any
Checkpointer: Any
pytestmark = [pytest.mark.lab, pytest.mark.filterwarnings("ignore:torch.distributed is disabled")]  # real torch processes: half a minute


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """Every quick run collects this file, and has no use for the seconds that torch takes to load."""
    global torch, Checkpointer
    torch = pytest.importorskip("torch")
    from minder import Checkpointer


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MINDER_GENERATION", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)


def _state(seed: int, steps: int = 0) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.GELU(), torch.nn.Linear(5, 2))
    state = {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.01)}
    for _ in range(steps):
        _train(state)
    return state


def _train(state: dict[str, Any]) -> float:
    loss = state["model"](torch.randn(8, 6)).square().sum()
    state["optimizer"].zero_grad()
    loss.backward()
    state["optimizer"].step()
    return float(loss.detach())


def _flip_a_bit(path: Path) -> None:
    part = next(path.glob("*.distcp"))
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)


def test_training_goes_on_exactly_as_it_would_have(tmp_path: Path) -> None:
    state = _state(1, steps=3)
    checkpoints = Checkpointer(tmp_path)
    checkpoints.save(3, state)
    assert checkpoints.close() is None
    expected = ([_train(state) for _ in range(4)], random.random(), float(np.random.rand()))

    fresh = _state(2)
    random.seed(0)
    np.random.seed(0)
    assert Checkpointer(tmp_path).load_latest(fresh) == 3
    assert ([_train(fresh) for _ in range(4)], random.random(), float(np.random.rand())) == expected


def test_what_is_saved_is_the_state_at_the_call(tmp_path: Path) -> None:
    state = _state(1, steps=1)
    before = [parameter.detach().clone() for parameter in state["model"].parameters()]
    checkpoints = Checkpointer(tmp_path)
    checkpoints.save(1, state)
    for _ in range(20):
        _train(state)  # while the background thread writes
    checkpoints.close()
    fresh = _state(2)
    Checkpointer(tmp_path).load_latest(fresh)
    assert all(torch.equal(a, b) for a, b in zip(before, fresh["model"].parameters(), strict=True))


def test_plain_values_and_tensors_are_loaded_too(tmp_path: Path) -> None:
    checkpoints = Checkpointer(tmp_path)
    checkpoints.save(5, {"epoch": 3, "moving_average": torch.arange(4.0), "note": {"words": ["a", "b"]}})
    state: dict[str, Any] = {"epoch": 0, "moving_average": torch.zeros(4), "note": {"words": []}}
    assert checkpoints.load_latest(state) == 5
    assert (state["epoch"], state["moving_average"].tolist(), state["note"]) == (3, [0.0, 1.0, 2.0, 3.0], {"words": ["a", "b"]})


def test_an_empty_folder_is_a_start_from_the_beginning(tmp_path: Path) -> None:
    assert Checkpointer(tmp_path / "new").load_latest(_state(1)) is None


def test_three_stay_and_older_ones_go(tmp_path: Path) -> None:
    state = _state(1, steps=1)
    checkpoints = Checkpointer(tmp_path)
    for step in range(1, 7):
        checkpoints.save(step, state)
        assert len(complete_checkpoints(tmp_path)) >= min(step - 1, 3)
    checkpoints.close()
    assert [manifest.step for manifest in complete_checkpoints(tmp_path)] == [6, 5, 4]
    assert len(list(tmp_path.iterdir())) == 3
    with pytest.raises(CheckpointError, match="at least 3"):
        Checkpointer(tmp_path, keep=1)


def test_a_flipped_bit_is_found_and_the_older_one_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = _state(1, steps=1)
    checkpoints = Checkpointer(tmp_path)
    for step in (1, 2, 3):
        checkpoints.save(step, state)
    checkpoints.wait()
    _flip_a_bit(complete_checkpoints(tmp_path)[0].path)
    with caplog.at_level(logging.WARNING, "minder.checkpoint"):
        assert checkpoints.load_latest(_state(2)) == 2
    said = [record.message for record in caplog.records if record.name == "minder.checkpoint"]
    assert len(said) == 1
    assert "is damaged and passed over" in said[0]


def test_when_all_are_damaged_the_run_does_not_silently_start_again(tmp_path: Path) -> None:
    checkpoints = Checkpointer(tmp_path)
    checkpoints.save(1, _state(1, steps=1))
    checkpoints.wait()
    _flip_a_bit(complete_checkpoints(tmp_path)[0].path)
    with pytest.raises(CheckpointError, match="all 1 complete checkpoints"):
        checkpoints.load_latest(_state(2))


def test_a_checkpoint_of_another_model_is_refused_with_a_reason(tmp_path: Path) -> None:
    checkpoints = Checkpointer(tmp_path)
    checkpoints.save(1, {"model": torch.nn.Linear(3, 3)})
    with pytest.raises(CheckpointError, match="does not fit"):
        checkpoints.load_latest({"model": torch.nn.Linear(4, 3)})


def test_a_crash_before_the_manifest_leaves_nothing_to_load(tmp_path: Path) -> None:
    state = _state(1, steps=1)
    checkpoints = Checkpointer(tmp_path)
    checkpoints.save(1, state)
    checkpoints.save(2, state)
    checkpoints.close()
    newest = complete_checkpoints(tmp_path)[0].path
    (newest / "manifest.json").unlink()  # what a kill between the files and the rename leaves
    (newest / "manifest.json.draft").write_text("{")
    later = Checkpointer(tmp_path)
    assert later.load_latest(_state(2)) == 1
    later.save(2, state)
    later.close()
    assert not newest.exists()
    assert [manifest.order for manifest in complete_checkpoints(tmp_path)] == [(1, 2), (0, 1)]


def test_a_restart_never_writes_over_its_forerunner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINDER_GENERATION", "4")
    first = Checkpointer(tmp_path)
    first.save(1, _state(1, steps=1))
    first.close()
    assert first.generation == 4
    assert Checkpointer(tmp_path).generation == 5
    monkeypatch.setenv("MINDER_GENERATION", "9")
    assert Checkpointer(tmp_path).generation == 9


def test_the_same_step_is_saved_once(tmp_path: Path) -> None:
    checkpoints = Checkpointer(tmp_path)
    checkpoints.save(1, _state(1, steps=1))
    checkpoints.save(1, _state(1, steps=1))
    assert checkpoints.close() is None
    assert len(complete_checkpoints(tmp_path)) == 1


@pytest.mark.root
def test_a_full_disk_costs_the_checkpoint_and_not_the_step(small_disk: Callable[[str], Path], caplog: pytest.LogCaptureFixture) -> None:
    disk = small_disk("256k")
    state = {"weights": torch.arange(4000.0)}
    checkpoints = Checkpointer(disk)
    checkpoints.save(1, state)
    assert checkpoints.wait() is None
    filler = disk / "filler"
    with filler.open("wb") as stream, pytest.raises(OSError, match="No space left"):
        while True:
            os.write(stream.fileno(), b"x" * 4096)
    checkpoints.save(2, state)
    error = checkpoints.wait()
    assert error is not None
    assert "No space left" in str(error)
    assert any("training goes on" in record.message for record in caplog.records)
    assert [manifest.step for manifest in complete_checkpoints(disk)] == [1]
    filler.unlink()
    checkpoints.save(3, state)
    assert checkpoints.wait() is None
    assert checkpoints.load_latest({"weights": torch.zeros(4000)}) == 3


def _run_ranks(body: str, tmp_path: Path, ranks: int = 2) -> str:
    """Fork `ranks` gloo processes from one that has loaded torch; each runs `body` with rank, size, folder and store at hand."""
    script = textwrap.dedent("""
        import logging, os, sys, time
        from datetime import timedelta
        from pathlib import Path
        import torch, torch.distributed as dist
        from minder import Checkpointer
        from minder.edge.checkpoint.manifest import complete_checkpoints
        folder, size = Path(sys.argv[1]), int(sys.argv[2])
        def store(name):
            return dist.FileStore(str(folder / name))
        def body(rank):
        {body}
        children = []
        for rank in range(size):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    body(rank)
                    status = 0
                except BaseException:
                    import traceback; traceback.print_exc()
                finally:
                    sys.stdout.flush(); sys.stderr.flush(); os._exit(status)
            children.append(child)
        sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
    """).replace("{body}", textwrap.indent(textwrap.dedent(body), "    ").lstrip("\n"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-c", script, str(tmp_path), str(ranks)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.lab
@pytest.mark.parametrize("end", ["pass", "raise SystemExit(0)", "checkpoints.close()"], ids=["end", "exit", "close"])
def test_a_script_that_ends_while_it_saves_has_its_last_checkpoint(tmp_path: Path, end: str) -> None:
    script = f"""
        import sys, torch
        from minder import Checkpointer
        def main():
            checkpoints = Checkpointer(sys.argv[1])
            checkpoints.save(1, {{"a": torch.ones(20_000_000)}})
            {end}
        main()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], timeout=120, check=True)
    assert [manifest.step for manifest in complete_checkpoints(tmp_path)] == [1]


def test_after_an_exception_no_save_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from minder.edge.checkpoint import checkpoint

    waited: list[float] = []

    class Tier:
        def wait_at_most(self, limit_s: float) -> bool:
            waited.append(limit_s)
            return True

    tier = Tier()
    monkeypatch.delattr(sys, "last_value", raising=False)
    checkpoint._finish_last_save(weakref.ref(tier))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
    checkpoint._finish_last_save(weakref.ref(tier))  # type: ignore[arg-type]
    assert waited == [checkpoint._LAST_SAVE_S]


_TOGETHER = "from minder.edge.checkpoint import equal_state; equal_state._LARGEST_ALONE_BYTES = 0"


@pytest.mark.parametrize(("mode", "files"), [("pass", 1), (_TOGETHER, 2)], ids=["first rank writes", "ranks write together"])
def test_all_ranks_agree_and_each_gets_its_own_random_state_back(tmp_path: Path, mode: str, files: int) -> None:
    _run_ranks(
        f"""
        {mode}
        dist.init_process_group("gloo", store=store("meet"), rank=rank, world_size=size, timeout=timedelta(seconds=60))
        torch.manual_seed(rank)
        checkpoints = Checkpointer(folder / "c")
        for step in (1, 2):
            checkpoints.save(step, {{"a": torch.arange(1000.0) * step, "b": torch.arange(9)}})
        expected = torch.rand(3)
        assert checkpoints.wait() is None
        newest = complete_checkpoints(folder / "c")[0]
        assert (newest.step, newest.world_size) == (2, 2)
        assert len([file for file in newest.files if file.name.endswith(".distcp")]) == {files}
        dist.barrier()
        if rank == 1:
            part = newest.path / newest.files[-1].name
            content = bytearray(part.read_bytes()); content[50] ^= 4; part.write_bytes(content)
        dist.barrier()
        state = {{"a": torch.zeros(1000), "b": torch.zeros(9, dtype=torch.int64)}}
        assert checkpoints.load_latest(state) == 1
        assert torch.equal(state["a"], torch.arange(1000.0)) and torch.equal(state["b"], torch.arange(9))
        assert torch.equal(torch.rand(3), expected)
        assert checkpoints.close() is None
        """,
        tmp_path,
    )


@pytest.mark.parametrize(("mode", "broken"), [("pass", 0), (_TOGETHER, 1)], ids=["first rank writes", "ranks write together"])
def test_one_rank_that_cannot_write_fails_the_save_on_all_and_the_next_one_works(tmp_path: Path, mode: str, broken: int) -> None:
    _run_ranks(
        f"""
        {mode}
        from minder.edge.checkpoint import hashing
        dist.init_process_group("gloo", store=store("meet"), rank=rank, world_size=size, timeout=timedelta(seconds=60))
        checkpoints = Checkpointer(folder / "c")
        state = {{"a": torch.arange(1000.0), "b": torch.arange(1000.0)}}
        whole = hashing._HashingStream.write
        def full(self, data):
            raise OSError(28, "No space left on device")
        if rank == {broken}:
            hashing._HashingStream.write = full
        checkpoints.save(1, state)
        error = checkpoints.wait()
        assert error is not None and "No space left" in str(error), error
        hashing._HashingStream.write = whole
        checkpoints.save(2, state)
        assert checkpoints.close() is None
        assert [manifest.step for manifest in complete_checkpoints(folder / "c")] == [2]
        """,
        tmp_path,
    )


def test_state_that_differs_between_ranks_is_saved_by_each(tmp_path: Path) -> None:
    _run_ranks(
        """
        dist.init_process_group("gloo", store=store("meet"), rank=rank, world_size=size, timeout=timedelta(seconds=60))
        own = f"shard{rank}"
        for folder_name, first_alike in (("from the first", False), ("from the second", True)):
            checkpoints = Checkpointer(folder / folder_name)
            if first_alike:
                checkpoints.save(1, {"weights": torch.ones(5)})
                assert checkpoints.wait() is None
                checkpoints.save(2, {"weights": torch.ones(5), own: torch.full((3,), float(rank))})
                assert "different state" in str(checkpoints.wait())
            checkpoints.save(3, {"weights": torch.ones(5), own: torch.full((3,), float(rank))})
            assert checkpoints.wait() is None
            state = {"weights": torch.zeros(5), own: torch.full((3,), -1.0)}
            assert checkpoints.load_latest(state) == 3
            assert state["weights"].tolist() == [1.0] * 5 and state[own].tolist() == [float(rank)] * 3
            assert checkpoints.close() is None
        """,
        tmp_path,
    )


def test_a_save_that_hangs_with_a_dead_generation_does_not_stop_the_next(tmp_path: Path) -> None:
    """In-place restart: the process goes on in a new group while the old save still waits for a silent peer."""
    _run_ranks(
        """
        dist.init_process_group("gloo", store=store("first"), rank=rank, world_size=size, timeout=timedelta(seconds=60))
        old = Checkpointer(folder / "c")
        old.save(1, {"weights": torch.ones(10)})
        assert old.wait() is None
        dist.barrier()
        if rank == 1:
            (folder / "silent").touch()
            while not (folder / "over").exists():
                time.sleep(0.01)
            return
        old.save(2, {"weights": torch.ones(10) * 2})
        while not (folder / "silent").exists():
            time.sleep(0.01)
        dist.destroy_process_group()
        dist.init_process_group("gloo", store=store("second"), rank=0, world_size=1, timeout=timedelta(seconds=60))
        new = Checkpointer(folder / "c")
        state = {"weights": torch.zeros(10)}
        assert new.load_latest(state) == 1
        new.save(2, state)
        assert new.close() is None
        assert [manifest.order for manifest in complete_checkpoints(folder / "c")] == [(1, 2), (0, 1)]
        assert old._tier._thread.is_alive()
        (folder / "over").touch()
        old._tier._thread.join(30)
        assert not old._tier._thread.is_alive()
        """,
        tmp_path,
    )
