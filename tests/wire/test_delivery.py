"""Code on its way to one launcher: what it misses is sent in pieces, what it refuses is said."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from minder.model.errors import WireError
from minder.wire.code_store import CHUNK_BYTES, CodeStore
from minder.wire.code_tree import tree_of
from minder.wire.delivery import deliver


class Launcher:
    """A store that answers as a launcher does. forgets: it says for ever that all is missing."""

    machine = "m1"

    def __init__(self, folder: Path, forgets: bool = False) -> None:
        self.store, self.forgets, self.pieces = CodeStore(folder), forgets, 0

    async def offer_update(self, body: Any, timeout_s: float) -> dict[str, Any]:
        tree = tree_of(body["files"])
        missing = list(tree.files) if self.forgets else self.store.missing(tree)
        return {"ready": not missing, "missing": [item.sha256 for item in missing]}

    async def send_piece(self, body: Any, timeout_s: float) -> dict[str, Any]:
        self.pieces += 1
        item = next(item for item in self.tree.files if item.sha256 == body["sha256"])
        return {"here": self.store.receive(item, body["offset"], base64.b64decode(body["data"]))}

    tree: Any


def send(launcher: Launcher, source: CodeStore, tree: Any) -> Any:
    launcher.tree = tree
    body = {"update": 1, "code": tree.digest, "env": {}, "args": None, "files": tree.rows()}
    return asyncio.run(deliver(launcher, body, source.read, asyncio.Semaphore(1)))  # type: ignore[arg-type]


@pytest.fixture
def source(tmp_path: Path) -> tuple[CodeStore, Any]:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_bytes(b"#" * (2 * CHUNK_BYTES + 1))
    (folder / "empty.py").write_bytes(b"")
    store = CodeStore(tmp_path / "store")
    return store, store.add_folder(folder)


def test_what_is_missing_goes_in_pieces_once(source: tuple[CodeStore, Any], tmp_path: Path) -> None:
    launcher = Launcher(tmp_path / "there")
    assert send(launcher, *source)["ready"] and launcher.pieces == 4
    assert send(launcher, *source)["ready"] and launcher.pieces == 4, "it has them already"
    launcher.store.keep(source[1])


def test_a_launcher_that_never_has_it_is_no_endless_loop(source: tuple[CodeStore, Any], tmp_path: Path) -> None:
    with pytest.raises(WireError, match="still misses 2 files"):
        send(Launcher(tmp_path / "there", forgets=True), *source)


def test_a_store_whose_file_is_cut_off_sends_nothing_of_it(source: tuple[CodeStore, Any], tmp_path: Path) -> None:
    store, tree = source
    item = next(item for item in tree.files if item.size_bytes)
    (tmp_path / "store" / "files" / item.sha256).write_bytes(b"#")
    with pytest.raises(WireError, match="cut off"):
        send(Launcher(tmp_path / "there"), store, tree)
