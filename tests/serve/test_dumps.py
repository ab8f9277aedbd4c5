"""Stack dumps and Flight Recorder dumps that are uploaded: the documents of the commands, or one line that says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from minder.cli import main
from minder.model.errors import BadInputError
from minder.record.client import Client

As = Callable[..., dict[str, str]]
STACKS = Path("datasets/stacks/stopped_rank")
COLLECTIVES = Path("tests/collectives/data/nccl/lock_gil_1st")


@pytest.fixture
def client(http: httpx.Client, as_: As) -> Client:
    return Client("http://testserver", as_()["Authorization"].removeprefix("Bearer "), http=http)


def test_the_service_says_what_the_commands_say(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    for command, folder, ask in (("stacks", STACKS, client.stacks), ("collectives", COLLECTIVES, client.collectives)):
        assert main([command, str(folder)]) == 0
        printed = json.loads(capsys.readouterr().out)
        found = ask(folder).model_dump(mode="json")
        assert {key: found[key] for key in printed} == printed
    assert client.stacks(STACKS).suspects and client.collectives(COLLECTIVES).suspect_ranks


def test_captures_in_folders_of_their_own_are_read_as_one_hang(client: Client, tmp_path: Path) -> None:
    for moment in ("20260302T061231Z", "20260302T061241Z"):
        (tmp_path / moment).mkdir()
        for file in STACKS.glob("*_pid*"):
            (tmp_path / moment / file.name).write_bytes(file.read_bytes())
    assert client.stacks(tmp_path).captures == 2
    with pytest.raises(BadInputError, match="no folder"):
        client.stacks(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match="no dumps"):
        client.collectives(tmp_path / "empty")


def dumps(*files: tuple[str, bytes], part: str = "dump") -> list[tuple[str, tuple[str, bytes]]]:
    return [(part, file) for file in files]


@pytest.mark.parametrize("path", ["/v1/stacks", "/v1/collectives"])
@pytest.mark.parametrize(
    ("files", "said"),
    [
        (dumps(("../../etc/cron.d/x_pid1.txt", b"x")), "none of a dump's"),
        (dumps(("/etc/passwd", b"x")), "none of a dump's"),
        (dumps((".hidden", b"x")), "none of a dump's"),
        (dumps(("a/b_pid1.txt", b"x")), "none of a dump's"),
        (dumps(("20260302T061231Z/../../x_pid1", b"x")), "none of a dump's"),
        (dumps(("a_pid1.txt", b"x"), ("a_pid1.txt", b"y")), "stands twice"),
        (dumps(("a_pid1.txt", b"x"), part="file"), "called dump"),
        (dumps(("readme.md", b"hello")), "dumps holds no"),
    ],
)
@pytest.mark.lab
def test_what_is_no_dump_is_refused_in_one_line(path: str, files: list[object], said: str, http: httpx.Client, as_: As) -> None:
    answer = http.post(path, files=files, headers=as_())  # type: ignore[arg-type]
    assert answer.status_code == 422 and said in answer.json()["detail"], answer.text
    assert "/tmp" not in answer.text and "minder-upload" not in answer.text


def test_odd_dumps_never_break_the_service(http: httpx.Client, as_: As) -> None:
    halves = b'[{"file": "a_pid1.txt", "machine": "\\ud800", "pid": 1}]'
    stack = next(STACKS.glob("*_pid*")).read_bytes()
    deep, bomb = b"[" * 100_000, b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R."
    for path in ("/v1/stacks", "/v1/collectives"):
        for content in (deep, bomb, b"", b"\xff" * 1000, stack):
            sent = dumps(("a_pid1.txt", content), ("processes.json", halves), ("job.toml", b"name = "))
            assert http.post(path, files=sent[:2], headers=as_()).status_code in (200, 422)
            assert http.post(path, files=sent, headers=as_()).status_code == 422 or path == "/v1/stacks"
        assert http.post(path, content=b"{}", headers=as_() | {"Content-Type": "application/json"}).status_code == 415
        assert http.post(path, files=dumps(("a_pid1.txt", b"x"))).status_code == 401
        assert http.post(path, files=dumps(("a_pid1.txt", b"x")), headers=as_("agent", machine="m1")).status_code == 403
