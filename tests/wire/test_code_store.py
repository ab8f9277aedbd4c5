"""Code by content: what an operator's folder becomes, what a network may say, what a launcher lays out."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from minder.model.errors import BadInputError, WireError
from minder.wire.code_store import CodeStore
from minder.wire.code_tree import CodeFile, read_tree, tree_of


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "lib").mkdir(parents=True)
    (folder / "train.py").write_text("import lib.model\n")
    (folder / "lib" / "model.py").write_text("WIDTH = 8\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("x")
    return folder


def test_a_folder_is_stored_once_and_laid_out_as_it_was(source: Path, tmp_path: Path) -> None:
    store, target = CodeStore(tmp_path / "store"), tmp_path / "out" / "v1"
    tree = store.add_folder(source)
    assert sorted(tree.paths) == ["lib/model.py", "run.sh", "train.py"]  # what version control keeps is no part of it
    assert store.add_folder(source) == tree == store.tree(tree.digest)
    store.lay_out(tree, target)
    store.lay_out(tree, target)
    assert (target / "lib" / "model.py").read_text() == "WIDTH = 8\n"
    modes = {path: stat.S_IMODE((target / path).stat().st_mode) for path in tree.paths}
    assert modes == {"lib/model.py": 0o600, "run.sh": 0o700, "train.py": 0o600}
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700
    assert not list(target.parent.glob(".*"))


def test_another_content_or_bit_is_another_version(source: Path) -> None:
    first = read_tree(source).digest
    (source / "run.sh").chmod(0o644)
    second = read_tree(source).digest
    (source / "lib" / "model.py").write_text("WIDTH = 9\n")
    assert len({first, second, read_tree(source).digest}) == 3


def test_a_symbolic_link_is_refused(source: Path) -> None:
    (source / "data").symlink_to("/etc/passwd")
    with pytest.raises(BadInputError, match="data is a symbolic link"):
        read_tree(source)


@pytest.mark.parametrize("path", ["../x.py", "/etc/x", "a/../../x", "a//b", "./a", "", "a\\b", "a\nb", "a/" * 200 + "x"])
def test_a_path_that_leads_out_is_refused(path: str) -> None:
    with pytest.raises(WireError, match="no path below"):
        tree_of([{"path": path, "size_bytes": 1, "sha256": "0" * 64}])


@pytest.mark.parametrize("paths", [["a.py", "a.py"], ["a", "a/b.py"]])
def test_a_name_stands_once(paths: list[str]) -> None:
    with pytest.raises(WireError, match="stands twice"):
        tree_of([{"path": path, "size_bytes": 1, "sha256": "0" * 64} for path in paths])


@pytest.mark.parametrize("rows", [None, [1], [{}], [{"path": "a", "size_bytes": -1, "sha256": "0" * 64}], []])
def test_what_is_no_list_of_files_is_refused(rows: object) -> None:
    with pytest.raises(WireError):
        tree_of(rows)


def test_pieces_arrive_in_order_and_the_hash_is_checked(source: Path, tmp_path: Path) -> None:
    here, there = CodeStore(tmp_path / "here"), CodeStore(tmp_path / "there")
    tree = here.add_folder(source)
    item = next(item for item in tree.files if item.path == "train.py")
    with pytest.raises(WireError, match="does not follow"):
        there.receive(item, 4, here.read(item, 4, 4))
    for offset in range(0, item.size_bytes, 4):
        there.receive(item, offset, here.read(item, offset, 4))
    assert item not in there.missing(tree)
    other = next(item for item in tree.files if item.path == "run.sh")
    with pytest.raises(WireError, match="another content"):
        there.receive(other, 0, b"x" * other.size_bytes)
    assert other in there.missing(tree)
    with pytest.raises(WireError, match="not here yet"):
        there.keep(tree)


def test_a_changed_file_in_the_store_is_not_laid_out(source: Path, tmp_path: Path) -> None:
    store = CodeStore(tmp_path / "store")
    tree = store.add_folder(source)
    item = tree.files[0]
    (tmp_path / "store" / "files" / item.sha256).write_bytes(b"?" * item.size_bytes)
    with pytest.raises(WireError, match="another content"):
        store.lay_out(tree, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_that_the_job_changed_is_put_back(source: Path, tmp_path: Path) -> None:
    store, target = CodeStore(tmp_path / "store"), tmp_path / "out"
    tree = store.add_folder(source)
    store.lay_out(tree, target)
    (target / "train.py").unlink()
    (target / "train.py").symlink_to("/etc/passwd")
    store.lay_out(tree, target)
    assert (target / "train.py").read_text() == "import lib.model\n" and not (target / "train.py").is_symlink()


def test_the_store_keeps_within_its_size_and_what_is_needed(tmp_path: Path) -> None:
    store, trees = CodeStore(tmp_path / "store", most_bytes=250), []
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "train.py").write_bytes(bytes([65 + number]) * 100)
        trees.append(store.add_folder(folder).digest)
    assert store.prune({trees[0]}) == trees[1:3]
    assert store.tree(trees[0]) and store.tree(trees[3])
    with pytest.raises(WireError, match="is not in"):
        store.tree(trees[1])


def test_an_empty_file_is_a_file(tmp_path: Path) -> None:
    store, item = CodeStore(tmp_path), CodeFile("lib/__init__.py", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    assert store.receive(item, 0, b"") == 0 and not store.missing(tree_of([{"path": "a", "size_bytes": 0, "sha256": item.sha256}]))
