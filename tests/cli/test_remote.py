"""`minder --server URL`: the same words, whether the ledger is here or behind a service."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import uvicorn

from minder.cli import main
from minder.model.clock import FakeClock
from minder.model.decision import Decision, Price
from minder.record.incidents import Ledger, kinds
from minder.record.store.tokens import TokenRecord, new_id
from serve.app import build_app
from serve.settings import Settings
from serve.state import open_service

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def past(load_file: Callable[[Path], ModuleType]) -> ModuleType:
    return load_file(Path(__file__).parent.parent / "serve" / "conftest.py")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, past: ModuleType) -> Iterator[SimpleNamespace]:
    """For those who only read."""
    with _serving(tmp_path_factory.mktemp("site"), past) as found:
        yield found


@pytest.fixture
def own_site(tmp_path: Path, past: ModuleType) -> Iterator[SimpleNamespace]:
    """For those who act."""
    with _serving(tmp_path, past) as found:
        yield found


@contextmanager
def _serving(folder: Path, past: ModuleType) -> Iterator[SimpleNamespace]:
    """A ledger with a past of this hour, and a real service on a copy of it."""
    with Ledger(folder / "here.db", clock=FakeClock(time.time())) as ledger:
        past.write_past(ledger, begin_s=time.time() - 1000.0)
        verdict = past.verdict_of("m1", time.time() - 50.0)
        ledger.open_incident(verdict, job="llm", time_s=time.time() - 50.0)
        decision = Decision("evict-m1", time.time() - 49.0, "evict", ("m1",), "act", "", verdict, Price(1.0, 9.0), ("s1",))
        asked = {"decision": decision, "until_s": time.time() + 6000.0, "on_timeout": "page", "generation": 2, "incidents": ["llm-2"]}
        ledger.append_once(kinds.APPROVAL_ASKED, asked, job="llm", incident="llm-2", operation_id="evict-m1")
    shutil.copy(folder / "here.db", folder / "there.db")
    service = open_service(Settings(str(folder / "there.db")))
    for role in ("operator", "viewer"):
        (folder / role).write_text(service.tokens.create(TokenRecord(new_id(), role, role, 0.0, "root")))
        (folder / role).chmod(0o600)
    server = uvicorn.Server(uvicorn.Config(build_app(service), port=0, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield SimpleNamespace(folder=folder, url=f"http://127.0.0.1:{port}")
    server.should_exit = True
    thread.join(30)
    service.close()


@pytest.fixture
def here(site: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> Say:
    return _here(site, capsys)


@pytest.fixture
def there(site: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> Say:
    return _there(site, capsys)


def _here(site: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> Say:
    def say(*words: str) -> tuple[int, str, str]:
        status = main([*words, "--ledger", str(site.folder / "here.db")])
        return status, *capsys.readouterr()

    return say


def _there(site: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> Say:
    def say(*words: str, role: str = "operator") -> tuple[int, str, str]:
        status = main(["--server", site.url, "--token-file", str(site.folder / role), *words])
        return status, *capsys.readouterr()

    return say


@pytest.mark.parametrize(
    "line",
    [
        "incidents list",
        "incidents list --state open --format json",
        "incidents show llm-1",
        "incidents show llm-1 --captures --format json",
        "incidents show llm-1 --captures",
        "incidents stats --until newest",
        "machine list",
        "machine list --format json",
        "pause --list",
        "maintenance list",
        "decision list --all",
        "decision list --format json",
    ],
)
def test_reads_say_the_same_there_as_here(here: Say, there: Say, line: str) -> None:
    assert _anywhere(there(*line.split())) == _anywhere(here(*line.split()))


def _anywhere(said: tuple[int, str, str]) -> tuple[int, str, str]:
    """Commands to paste name the place that they were read from."""
    status, out, err = said
    return status, re.sub(r" (--server|--token-file|--ledger) \S+", "", out), err


def test_actions_say_the_same_and_stand_in_the_services_ledger(own_site: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = _here(own_site, capsys), _there(own_site, capsys)
    for words in (
        ["pause", "--job", "llm", "--for", "2h", "--reason", "firmware"],
        ["unpause"],
        ["machine", "outcome", "m2", "confirmed", "--note", "bad HBM"],
        ["machine", "return", "m2", "--note", "replaced"],
        ["decision", "reject", "evict-m1", "--reason", "flashing"],
        ["maintenance", "add", "--job", "llm", "--for", "2h", "--reason", "x"],
        ["machine", "list"],
    ):
        said_here, said_there = here(*words), there(*words)
        assert said_there[0] == said_here[0] == 0, (said_here, said_there)
        assert said_there[1].partition(": ")[2][:20] == said_here[1].partition(": ")[2][:20]
    with Ledger(own_site.folder / "there.db") as ledger:
        found = [event for event in ledger.events() if event.kind in ("pause", "unpause", "outcome", "unbarred")]
        assert [event.payload["by"] for event in found] == ["operator"] * 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["incidents", "show", "llm-9"], 'no incident "llm-9"'),
        (["machine", "outcome", "m2", "confirmed"], "--note is missing: the service writes down why"),
        (["run", "x.py"], "`minder run` works on this machine only"),
        (["incidents", "list", "--ledger", "x.db"], "either --server or --ledger"),
    ],
)
def test_what_cannot_be_is_one_line(there: Say, words: list[str], said: str) -> None:
    status, out, err = there(*words)
    assert (status, out) == (2, "") and said in err and len(err.strip().splitlines()) == 1


def test_a_viewer_may_not_act(there: Say) -> None:
    status, _, err = there("pause", "--all", "--for", "1h", "--reason", "x", role="viewer")
    assert status == 2 and "needs a token of role operator" in err


@pytest.mark.parametrize(
    ("url", "token", "status", "said"),
    [
        ("ftp://host", "secret", 2, "is no address"),
        ("http://127.0.0.1:1", "secret", 1, "does not answer"),
        ("http://127.0.0.1:1", None, 2, "wants a token"),
    ],
)
def test_a_service_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str, token: str | None, status: int, said: str
) -> None:
    monkeypatch.setenv("MINDER_SERVER", url)
    monkeypatch.delenv("MINDER_TOKEN", raising=False)
    if token is not None:
        monkeypatch.setenv("MINDER_TOKEN", token)
    assert main(["machine", "list"]) == status
    out, err = capsys.readouterr()
    assert out == "" and said in err and len(err.strip().splitlines()) == 1 and "secret" not in err


def test_the_vendors_bundle_is_the_services(site: SimpleNamespace, here: Say, there: Say, tmp_path: Path) -> None:
    for say, name in ((here, "here.zip"), (there, "there.zip")):
        status, out, _ = say("incidents", "bundle", "llm-1", "-o", str(tmp_path / name))
        assert (status, out) == (0, f"wrote {tmp_path / name}\n")
    assert (tmp_path / "here.zip").read_bytes() == (tmp_path / "there.zip").read_bytes()
    status, out, err = there("incidents", "bundle", "llm-9", "-o", str(tmp_path / "no.zip"))
    assert status == 2 and out == "" and 'no incident "llm-9"' in err and not (tmp_path / "no.zip").exists()


def test_a_test_of_a_machine_is_ordered_at_the_service(own_site: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    there = _there(own_site, capsys)
    status, _, err = there("machine", "retest", "m2")
    assert status == 2 and "--note is missing" in err
    status, out, _ = there("machine", "retest", "m2", "--job", "llm", "--note", "new HBM")
    assert status == 0 and "the controller of llm has m2 tested" in out
    status, _, err = there("machine", "retest", "m2", "--job", "llm", "--note", "new HBM")
    assert status == 2 and "is being tested already" in err
