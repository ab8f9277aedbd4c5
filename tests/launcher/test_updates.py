"""What a launcher that takes updates keeps, refuses and runs."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from minder.edge.launcher.code import code_version
from minder.edge.launcher.settings import LaunchSettings
from minder.edge.launcher.updates import ProgramOrder, Updates
from minder.model.errors import WireError
from minder.wire.code_store import CodeStore
from minder.wire.code_tree import CodeTree

PLAIN = {"PYTHONPATH": str(Path(__file__).parent / "scripts" / "no_torch")}  # workers start without torch: quick


def settings(tmp_path: Path, *command: str, allowed: bool = True, allow_env: tuple[str, ...] = ()) -> LaunchSettings:
    base = LaunchSettings("llm", "m1", "127.0.0.1", 0, 1, command or ("/old/src/train.py", "--lr", "1"), tmp_path, tmp_path)
    import dataclasses

    return dataclasses.replace(base, allow_updates=tmp_path / "updates" if allowed else None, allow_env=allow_env)


def write(folder: Path, text: str, name: str = "train.py") -> tuple[CodeStore, CodeTree]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    store = CodeStore(folder.parent / f"store-{folder.name}")
    return store, store.add_folder(folder)


def order(tree: CodeTree, update: int = 7, **more: Any) -> dict[str, Any]:
    return {"update": update, "code": tree.digest, "env": {}, "args": None, "files": tree.rows(), **more}


def send(call: Callable[[str, dict[str, Any]], dict[str, Any]], store: CodeStore, tree: CodeTree, body: dict[str, Any]) -> None:
    missing = call("/v1/updates", body)["missing"]
    for item in (item for item in tree.files if item.sha256 in missing):
        piece = {"code": tree.digest, "sha256": item.sha256, "offset": 0, "data": base64.b64encode(store.read(item, 0)).decode()}
        call("/v1/updates/pieces", piece)
    assert call("/v1/updates", body)["ready"]


def local(updates: Updates) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    return lambda path, body: updates.receive(body) if path.endswith("pieces") else updates.prepare(body)


def test_a_version_is_run_once_it_is_whole(tmp_path: Path) -> None:
    updates = Updates(settings(tmp_path))
    store, tree = write(tmp_path / "new", "print(2)\n")
    wanted = ProgramOrder(7, tree.digest, {"NCCL_DEBUG": "INFO"}, ("--lr", "2"))
    with pytest.raises(WireError, match="is not in"):
        updates.program(wanted)
    send(local(updates), store, tree, order(tree))
    for there in (updates, Updates(settings(tmp_path))):  # a launcher that was started again has it still
        program = there.program(wanted)
        assert Path(program.command[0]).read_text() == "print(2)\n" and program.command[1:] == ("--lr", "2")
        assert (program.update, program.env) == (7, {"NCCL_DEBUG": "INFO"})
    assert updates.program(None).command == ("/old/src/train.py", "--lr", "1")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"env": {"LD_PRELOAD": "/tmp/x.so"}}, "LD_PRELOAD is refused"),
        ({"env": {"HF_HOME": "/tmp"}}, "--allow-env HF_HOME"),
        ({"files": [{"path": "../x.py", "size_bytes": 1, "sha256": "0" * 64}]}, "no path below"),
        ({"code": "0" * 64}, "its files are not those"),
        ({"update": 0}, "a number from 1 on"),
        ({"args": ["a\0b"]}, "null character"),
    ],
)
def test_what_it_does_not_take_is_refused_with_one_line(tmp_path: Path, changed: dict[str, Any], why: str) -> None:
    _, tree = write(tmp_path / "new", "print(2)\n")
    with pytest.raises(WireError, match=why):
        Updates(settings(tmp_path)).prepare(order(tree, **changed))


def test_without_the_option_nothing_is_taken(tmp_path: Path) -> None:
    updates = Updates(settings(tmp_path, allowed=False))
    for call in (lambda: updates.prepare({"update": 1}), lambda: updates.receive({}), lambda: updates.program(ProgramOrder(1))):
        with pytest.raises(WireError, match="takes no updates: start it with --allow-updates DIR"):
            call()
    assert not updates.offered and updates.program(None).update == 0


def test_a_piece_of_nothing_that_was_offered_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WireError, match="belongs to no file"):
        Updates(settings(tmp_path)).receive({"code": "x", "sha256": "y", "offset": 0, "data": ""})


@pytest.mark.parametrize(("command", "name"), [(("/old/src/train.py",), "main.py"), (("-m", "llm.train"), "train.py")])
def test_code_without_the_script_is_refused(tmp_path: Path, command: tuple[str, ...], name: str) -> None:
    _, tree = write(tmp_path / "new", "", name)
    with pytest.raises(WireError, match="is not in the code"):
        Updates(settings(tmp_path, *command)).prepare(order(tree))


def test_a_module_is_found_in_the_code(tmp_path: Path) -> None:
    updates = Updates(settings(tmp_path, "-m", "llm.train", "--lr", "1"))
    (tmp_path / "new" / "llm").mkdir(parents=True)
    store, tree = write(tmp_path / "new", "", "llm/train.py")
    send(local(updates), store, tree, order(tree))
    program = updates.program(ProgramOrder(7, tree.digest, {}, ("--lr", "2")))
    assert program.command == ("-m", "llm.train", "--lr", "2") and program.code_root is not None and program.code_root.name == tree.digest


def test_variables_and_files_of_an_update_are_another_version(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    plain = code_version([str(script)], {})
    changed = code_version([str(script)], {}, 1, {"NCCL_DEBUG": "INFO"})
    assert len({plain, changed, code_version([str(script)], {}, 2, {}, tmp_path / "abc"), ""}) == 4
    assert code_version([str(script)], {"MINDER_CODE_VERSION": "v7"}, 3) == "v7+update3"


def asking(launcher: Any) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    def call(path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = launcher.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    return call


def wait_until_warm(launcher: Any, body: dict[str, Any]) -> None:
    call, end_s = asking(launcher), time.monotonic() + 60.0
    while not call("/v1/updates/warm", body)["warm"]:
        assert time.monotonic() < end_s, launcher.logs()
        time.sleep(0.05)


def test_workers_and_warm_spares_of_another_version_are_fresh_processes(launch: Callable[..., Any], tmp_path: Path) -> None:
    options = ["--allow-updates", str(tmp_path / "updates"), "--warm-spares"]
    launcher = launch("idle.py", options=options, env=PLAIN).connect()
    assert "updates" in launcher.get("/v1/state")["offers"]
    [before] = launcher.wait_states("waiting")
    launcher.post("run", 1, [{"RANK": "0"}])
    launcher.wait_states("running")
    text = "import os, time\nprint('new code, update', os.environ['MINDER_UPDATE'], flush=True)\ntime.sleep(600)\n"
    store, tree = write(tmp_path / "new", text, "idle.py")

    call = asking(launcher)
    early = launcher.post("run", 2, [{"RANK": "0"}], program={"update": 1, "code": tree.digest})
    assert early.status_code == 400 and "is not in" in early.json()["error"]
    assert launcher.workers()[0]["generation"] == 1, "the old version runs on"
    send(call, store, tree, order(tree, 1))
    launcher.post("run", 2, [{"RANK": "0"}], program={"update": 1, "code": tree.digest})
    [after] = launcher.wait_for(lambda workers: workers[0]["state"] == "running" and workers[0]["generation"] == 2)
    assert after["pid"] != before["pid"] and launcher.get("/v1/state")["update"] == 1
    launcher.wait_for(lambda workers: "new code, update 1" in launcher.logs())
    launcher.post("run", 3, [{"RANK": "0"}])
    [back] = launcher.wait_for(lambda workers: workers[0]["state"] == "running" and workers[0]["generation"] == 3)
    assert back["pid"] != after["pid"] and launcher.get("/v1/state")["update"] == 0


@pytest.mark.lab
def test_a_version_that_was_warmed_up_takes_the_place_at_once(launch: Callable[..., Any], tmp_path: Path) -> None:
    launcher = launch("idle.py", options=["--allow-updates", str(tmp_path / "updates")], env=PLAIN).connect()
    launcher.wait_states("waiting")
    launcher.post("run", 1, [{"RANK": "0"}])
    [before] = launcher.wait_states("running")
    store, tree = write(tmp_path / "new", "import time\nprint('new code', flush=True)\ntime.sleep(600)\n", "idle.py")
    send(asking(launcher), store, tree, order(tree, 1))
    wait_until_warm(launcher, order(tree, 1))
    there = {child.pid for child in psutil.Process(launcher.process.pid).children()}
    assert launcher.workers()[0]["pid"] == before["pid"], "the old version runs on meanwhile"
    assert "new code" not in launcher.logs()
    launcher.post("run", 2, [{"RANK": "0"}], program={"update": 1, "code": tree.digest})
    [after] = launcher.wait_for(lambda workers: workers[0]["state"] == "running" and workers[0]["generation"] == 2)
    assert after["pid"] in there - {before["pid"]}
    launcher.wait_for(lambda workers: "new code" in launcher.logs())

    wait_until_warm(launcher, {"update": 0})  # and back to what the launcher was started with
    there = {child.pid for child in psutil.Process(launcher.process.pid).children()}
    launcher.post("run", 3, [{"RANK": "0"}])
    [back] = launcher.wait_for(lambda workers: workers[0]["state"] == "running" and workers[0]["generation"] == 3)
    assert back["pid"] in there - {after["pid"]}


@pytest.mark.lab
def test_a_version_that_cannot_start_is_refused_while_the_old_one_runs(launch: Callable[..., Any], tmp_path: Path) -> None:
    script = "import time\nimport minder\n\nminder.run(lambda: time.sleep(600))\n"
    (tmp_path / "train.py").write_text(script)
    options = ["--allow-updates", str(tmp_path / "updates"), "--barrier", "script"]
    launcher = launch(str(tmp_path / "train.py"), options=options, env=PLAIN).connect()
    launcher.wait_states("waiting")
    launcher.post("run", 1, [{"RANK": "0"}])
    [before] = launcher.wait_states("running")
    store, tree = write(tmp_path / "new", "import nothing_of_that_name\n" + script)
    send(asking(launcher), store, tree, order(tree, 1))
    end_s = time.monotonic() + 60.0
    while (answer := launcher.http.post("/v1/updates/warm", json=order(tree, 1))).status_code == 200:
        assert time.monotonic() < end_s
        time.sleep(0.05)
    assert answer.status_code == 400
    assert "a process of update 1 ends before it is asked to run (exit status 1)" in answer.json()["error"]
    assert "nothing_of_that_name" in launcher.logs()
    assert launcher.workers()[0]["pid"] == before["pid"]
