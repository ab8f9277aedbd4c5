"""Folders as other programs leave them: which step could be resumed from, and one that is kept when its writer removes it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from minder.cli import main
from minder.edge.checkpoint.site import newest_site_step, pin, site_checkpoints
from minder.model.errors import CheckpointError


def _file(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _torchtitan(folder: Path) -> None:
    for step in (10, 20, 30):
        _file(folder / f"step-{step}" / "__0_0.distcp")
    for step in (10, 20):
        _file(folder / f"step-{step}" / ".metadata")


def _megatron(folder: Path) -> None:
    for step in (10, 20, 30):
        _file(folder / f"iter_{step:07d}" / "__0_0.distcp")
        _file(folder / f"iter_{step:07d}" / "metadata.json")
    (folder / "iter_0000030" / "metadata.json").unlink()
    _file(folder / "latest_checkpointed_iteration.txt", "20\n")


def _old_megatron(folder: Path) -> None:
    for step in (20, 30):
        _file(folder / f"iter_{step:07d}" / "mp_rank_00" / "model_optim_rng.pt")
    _file(folder / "latest_checkpointed_iteration.txt", "20")


def _megatron_of_dcp(folder: Path) -> None:
    """Its formats torch_dcp and fsdp_dtensor: no metadata.json."""
    for step in (10, 20, 30):
        _file(folder / f"iter_{step:07d}" / "__0_0.distcp")
    for step in (10, 20):
        _file(folder / f"iter_{step:07d}" / ".metadata")
    _file(folder / "latest_checkpointed_iteration.txt", "30")


def _megatron_core_alone(folder: Path) -> None:
    """A loop of one's own around dist_checkpointing writes no file beside the folders."""
    for step in (20, 30):
        for name in ("common.pt", ".metadata", "__0_0.distcp"):
            _file(folder / f"iter_{step:07d}" / name)
    _file(folder / "iter_0000020" / "metadata.json")


def _deepspeed(folder: Path) -> None:
    for step in (20, 30):
        _file(folder / f"global_step{step}" / "mp_rank_00_model_states.pt")
    _file(folder / "latest", "global_step20")


def _hugging_face(folder: Path) -> None:
    _file(folder / "checkpoint-20" / "trainer_state.json")
    _file(folder / "checkpoint-30" / "model.safetensors")


def _lightning(folder: Path) -> None:
    _file(folder / "epoch=1-step=20.ckpt")
    _file(folder / "epoch=2-step=30.ckpt", "")


def _sharded_lightning(folder: Path) -> None:
    for step in (20, 30):
        for name in ("__0_0.distcp", ".metadata"):
            _file(folder / f"epoch=1-step={step}.ckpt" / name)
    _file(folder / "epoch=1-step=20.ckpt" / "meta.pt")


def _lightning_with_deepspeed(folder: Path) -> None:
    for step in (20, 30):
        _file(folder / f"epoch=1-step={step}.ckpt" / "checkpoint" / "mp_rank_00_model_states.pt")
    _file(folder / "epoch=1-step=20.ckpt" / "latest", "checkpoint")


_WRITERS = [
    _torchtitan, _megatron, _old_megatron, _megatron_of_dcp, _megatron_core_alone, _deepspeed, _hugging_face, _lightning,
    _sharded_lightning, _lightning_with_deepspeed,
]  # fmt: skip


@pytest.mark.parametrize("write", _WRITERS)
def test_the_newest_complete_step_counts_and_what_its_writer_did_not_finish_does_not(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path)
    assert newest_site_step(tmp_path) == 20
    newest = site_checkpoints(tmp_path)[0]
    assert newest.step == 30 and newest.missing


@pytest.mark.parametrize("write", _WRITERS)
def test_a_pinned_step_outlives_its_writers_rotation(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path)
    kept = pin(tmp_path, 20)
    assert kept == pin(tmp_path, 20)
    (original,) = [each for each in site_checkpoints(tmp_path) if each.step == 20 and not each.is_pinned]
    shutil.rmtree(path) if (path := original.paths[0]).is_dir() else path.unlink()
    (left,) = [each for each in site_checkpoints(tmp_path) if each.step == 20]
    assert (left.is_pinned, left.missing, left.paths[0]) == (True, "", kept)
    with pytest.raises(CheckpointError, match=r"step 30 .* cannot be kept: "):
        pin(tmp_path, 30)
    with pytest.raises(CheckpointError, match="no complete checkpoint of it lies there"):
        pin(tmp_path, 40)


def test_shards_of_one_machine_are_not_called_complete(tmp_path: Path) -> None:
    for rank in (0, 1):
        _file(tmp_path / str(rank) / f"iter_0000020_{rank}_local.pt")
    _file(tmp_path / "0" / "iter_0000020_1_local.pt")
    _file(tmp_path / "0" / "iter_0000030_0_local.dirty.pt")
    (found,) = site_checkpoints(tmp_path)
    assert (found.step, found.format, found.missing, len(found.paths)) == (20, "NVRx", None, 3)
    assert newest_site_step(tmp_path) is None


def test_weights_alone_are_nothing_to_go_on_with(tmp_path: Path) -> None:
    _torchtitan(tmp_path)
    _file(tmp_path / "step-40" / "model-00001-of-00001.safetensors")  # torchtitan's last step, for Hugging Face
    _file(tmp_path / "step-40" / "model.safetensors.index.json")
    assert "weights only" in str(site_checkpoints(tmp_path)[0].missing)
    assert newest_site_step(tmp_path) == 20


def test_a_folder_without_checkpoints_has_none(tmp_path: Path) -> None:
    _file(tmp_path / "stepping-stones" / "notes")
    assert site_checkpoints(tmp_path) == []


def test_the_command_lists_and_pins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _torchtitan(tmp_path)
    assert main(["job", "checkpoints", str(tmp_path), "--pin", "10", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(item["step"], item["complete"], item["pinned"]) for item in found["checkpoints"]] == [
        (30, False, False), (20, True, False), (10, True, True), (10, True, False),
    ]  # fmt: skip
    assert main(["job", "checkpoints", str(tmp_path)]) == 0
    assert "no .metadata, which its writer adds last" in capsys.readouterr().out
    assert main(["job", "checkpoints", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert main(["job", "checkpoints", str(tmp_path), "--pin", "30"]) == 2
