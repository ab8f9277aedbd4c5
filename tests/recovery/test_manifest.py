from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from minder.edge.checkpoint.manifest import (
    Manifest,
    ManifestFile,
    checkpoint_path,
    complete_checkpoints,
    newest_generation,
    newest_step,
    own_version,
    prune,
    publish,
    readable_checkpoints,
    verify,
)
from minder.model.errors import CheckpointError


def _write(directory: Path, step: int, generation: int = 0, content: bytes = b"weights", update: int = 0, skipped: str = "") -> Manifest:
    path = checkpoint_path(directory, step, generation)
    path.mkdir(parents=True)
    (path / "part").write_bytes(content)
    file = ManifestFile("part", len(content), hashlib.sha256(content).hexdigest())
    return Manifest(path, step, generation, 2, 1.5, (file,), update=update, code_version="v" if update else "", skipped=skipped)


def _published(directory: Path, step: int, generation: int = 0, update: int = 0, skipped: str = "") -> Manifest:
    manifest = _write(directory, step, generation, update=update, skipped=skipped)
    publish(manifest)
    return manifest


def test_a_checkpoint_counts_only_once_it_is_published(tmp_path: Path) -> None:
    manifest = _write(tmp_path, 7)
    assert complete_checkpoints(tmp_path) == []
    publish(manifest)
    assert complete_checkpoints(tmp_path) == [manifest]
    assert verify(manifest) == ()


def test_a_missing_folder_holds_no_checkpoints(tmp_path: Path) -> None:
    assert complete_checkpoints(tmp_path / "nowhere") == []
    assert newest_generation(tmp_path / "nowhere") == -1
    assert newest_step(tmp_path / "nowhere") is None


def test_a_later_generation_is_newer_whatever_its_step(tmp_path: Path) -> None:
    for step, generation in ((40, 0), (41, 0), (38, 1)):
        _published(tmp_path, step, generation)
    assert [manifest.order for manifest in complete_checkpoints(tmp_path)] == [(1, 38), (0, 41), (0, 40)]
    assert newest_step(tmp_path) == 38, "what a new generation resumes from, and so what is reported"


@pytest.mark.parametrize("kept_bytes", [0, 1, 20, 100])
def test_a_cut_off_manifest_is_no_manifest(tmp_path: Path, kept_bytes: int) -> None:
    manifest = _published(tmp_path, 1)
    os.truncate(manifest.path / "manifest.json", kept_bytes)
    assert complete_checkpoints(tmp_path) == []


def test_any_flipped_bit_of_a_manifest_is_noticed(tmp_path: Path) -> None:
    manifest = _published(tmp_path, 1)
    file = manifest.path / "manifest.json"
    whole = file.read_bytes()
    for position in range(len(whole)):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        found = complete_checkpoints(tmp_path)
        assert found in ([], [manifest]), f"bit flip at byte {position} of {whole!r}"
    file.write_bytes(whole)
    assert complete_checkpoints(tmp_path) == [manifest]


def test_a_manifest_must_fit_its_folder_and_stay_inside_it(tmp_path: Path) -> None:
    manifest = _published(tmp_path, 1)
    manifest.path.rename(checkpoint_path(tmp_path, 2, 0))
    assert complete_checkpoints(tmp_path) == []
    outside = _write(tmp_path, 3)
    publish(Manifest(outside.path, 3, 0, 2, 1.5, (ManifestFile("../part", 7, "00"),)))
    assert complete_checkpoints(tmp_path) == []


def test_damage_is_named(tmp_path: Path) -> None:
    manifest = _published(tmp_path, 1)
    part = manifest.path / "part"
    part.write_bytes(b"weighty")
    assert "SHA-256" in verify(manifest)[0]
    part.write_bytes(b"weight")
    assert verify(manifest) == ("part has 6 bytes instead of 7",)
    part.unlink()
    assert verify(manifest) == ("part: No such file or directory",)


def test_pruning_keeps_the_newest_and_clears_what_never_finished(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        _published(tmp_path, step)
    unfinished_before, unfinished_after = _write(tmp_path, 4), _write(tmp_path, 6)
    newest = _published(tmp_path, 5)
    foreign = tmp_path / "notes"
    foreign.mkdir()
    prune(tmp_path, newest, keep=3)
    assert [manifest.step for manifest in complete_checkpoints(tmp_path)] == [5, 3, 2]
    assert not unfinished_before.path.exists()
    assert unfinished_after.path.exists(), "it may be the save in flight"
    assert foreign.exists()


def test_a_zombie_of_an_older_generation_cannot_publish(tmp_path: Path) -> None:
    late = _write(tmp_path, 9, generation=1)
    _write(tmp_path, 8, generation=2)
    with pytest.raises(CheckpointError, match="generation 2 has taken over"):
        publish(late)
    assert complete_checkpoints(tmp_path) == []


def test_a_manifest_of_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    manifest = _published(tmp_path, 1)
    file = manifest.path / "manifest.json"
    content = json.loads(file.read_text()) | {"format": 2}
    del content["sha256"]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    file.write_text(json.dumps({**content, "sha256": digest}))
    assert complete_checkpoints(tmp_path) == []


def test_a_version_goes_on_from_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINDER_CHECKPOINTS_NOT_OF", raising=False)
    older, newer = _published(tmp_path, 40, 1), _published(tmp_path, 45, 2, update=7)
    assert readable_checkpoints(tmp_path) == [newer, older] and newest_step(tmp_path) == 45
    monkeypatch.setenv("MINDER_CHECKPOINTS_NOT_OF", "7")
    assert readable_checkpoints(tmp_path) == [older] and newest_step(tmp_path, {7}) == 40
    monkeypatch.setenv("MINDER_CHECKPOINTS_NOT_OF", "0,7")
    with pytest.raises(CheckpointError, match="written by updates that this version does not read"):
        readable_checkpoints(tmp_path)


def test_the_last_checkpoint_of_the_version_before_stays(tmp_path: Path) -> None:
    for step in (10, 11):
        _published(tmp_path, step, 1)
    for step in (12, 13, 14, 15):
        newest = _published(tmp_path, step, 2, update=7)
    prune(tmp_path, newest, keep=3)
    assert [item.step for item in complete_checkpoints(tmp_path)] == [15, 14, 13, 11]


def test_a_process_knows_its_version_from_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINDER_UPDATE", "7")
    monkeypatch.setenv("MINDER_CODE_VERSION", "abc")
    assert own_version() == (7, "abc", "")
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "6,5")
    assert own_version() == (7, "abc", "5-6")
    monkeypatch.delenv("MINDER_SKIP_BATCHES")
    monkeypatch.setenv("MINDER_UPDATE", "")
    monkeypatch.delenv("MINDER_CODE_VERSION")
    assert own_version() == (0, "", "")


def test_a_run_goes_on_from_what_has_learned_from_its_own_batches_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch 5 is step 6's. Generation 2 leaves it out, generation 3 takes that back."""
    for step in (4, 5, 6, 7):
        _published(tmp_path, step, 1)
    assert [newest_step(tmp_path, skipped=text) for text in ("", "5", "5-9", "3")] == [7, 5, 5, None]
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "5")
    assert [item.step for item in readable_checkpoints(tmp_path)] == [5, 4]
    for step in (6, 7):
        _published(tmp_path, step, 2, skipped="5")
    assert [item.order for item in readable_checkpoints(tmp_path)] == [(2, 7), (2, 6), (1, 5), (1, 4)]
    assert newest_step(tmp_path) == 7 and newest_step(tmp_path, skipped="5,20") == 7
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "3")
    with pytest.raises(CheckpointError, match="leaves out 3: move them away"):
        readable_checkpoints(tmp_path)


def test_what_a_run_cannot_go_on_from_pushes_nothing_out(tmp_path: Path) -> None:
    for step in (3, 4, 5, 6, 7):
        _published(tmp_path, step, 1)
    prune(tmp_path, _published(tmp_path, 6, 2, skipped="5"), 3)
    assert [item.order for item in complete_checkpoints(tmp_path)] == [(2, 6), (1, 5), (1, 4)]


def test_a_manifest_with_nonsense_instead_of_batches_does_not_count(tmp_path: Path) -> None:
    _published(tmp_path, 3, 1, skipped="x")
    assert complete_checkpoints(tmp_path) == []
