"""The log: one line per event, readable by a machine in either format, on standard error only."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shlex
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.app import solo
from minder.cli import main, run, watch
from minder.model.clock import FakeClock
from minder.model.errors import BadInputError
from minder.model.log import crashed, event, remove_logging, say, set_up_logging, words_of
from minder.record.incidents import Ledger, kinds
from minder.wire.contact_log import ContactLog, RefusedCallers

LOG = logging.getLogger("minder.test")
Set = Callable[..., None]


@pytest.fixture
def logging_as(monkeypatch: pytest.MonkeyPatch) -> Iterator[Set]:
    def choose(style: str = "", level: str = "", default: str | None = None) -> None:
        monkeypatch.setenv("MINDER_LOG_FORMAT", style)
        monkeypatch.setenv("MINDER_LOG_LEVEL", level)
        set_up_logging(default)

    yield choose
    remove_logging()


@pytest.mark.parametrize("speak", [say, run._say, watch._say, solo._say])
def test_a_line_that_finds_no_room_is_lost_and_ends_no_controller(speak: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by bench/chaos.py: the disk of ledger and log was full, and the controller that had to say so ended."""
    full = io.StringIO()
    monkeypatch.setattr(full, "write", lambda text: os.write(room, text.encode()))
    monkeypatch.setattr(sys, "stderr", full)
    room = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError, match="No space"):
            print("as it was", file=sys.stderr)
        speak("no action while the ledger cannot be used")
    finally:
        os.close(room)


def fields(line: str) -> dict[str, str]:
    """A line of key=value, by the shell's rules of quoting."""
    return dict(part.split("=", 1) for part in shlex.split(line))


def test_text_is_key_value_whatever_the_values_hold(logging_as: Set, capsys: pytest.CaptureFixture[str]) -> None:
    logging_as("text", "info")
    event(
        LOG,
        logging.INFO,
        "two words",
        machines=("m1", "m2"),
        probes=["disk", "gemm"],
        seen={"b", "a"},
        detail='a "quoted" = b',
        empty="",
        number=0.25,
        none=None,
    )
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    found = fields(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("time"))
    own = {"machines": "m1,m2", "probes": "disk,gemm", "seen": "a,b", "detail": 'a "quoted" = b', "empty": "", "number": "0.25"}
    assert found == {"level": "info", "logger": "minder.test", "event": "two words"} | own


@pytest.mark.parametrize("text", ["line\nbreak", "\x1b[31mred", "tab\there", "snow ☃", "\u2028\x85\x9b1m"])
def test_no_value_makes_a_second_line(logging_as: Set, capsys: pytest.CaptureFixture[str], text: str) -> None:
    """A machine's own words cannot forge a line of the log."""
    for style in ("text", "json"):
        logging_as(style, "info")
        event(LOG, logging.INFO, "said", detail=text + "\nlevel=error event=forged")
        (line,) = capsys.readouterr().err.splitlines()
        assert line.isprintable()


def test_a_traceback_cannot_forge_a_line_either(logging_as: Set, capsys: pytest.CaptureFixture[str]) -> None:
    logging_as("text", "info")
    try:
        raise ValueError("\x1b[2J\u2028time=now level=info event=forged\ntime=now level=info event=forged")
    except ValueError as error:
        event(LOG, logging.ERROR, "part failed", error=error)
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("time=") for line in lines] == [True] + [False] * (len(lines) - 1)
    assert all(line.isprintable() for line in lines)


def test_json_is_one_object_a_line_with_its_traceback_in_it(logging_as: Set, capsys: pytest.CaptureFixture[str]) -> None:
    logging_as("json", "info")
    try:
        raise KeyError("loss")
    except KeyError as error:
        event(LOG, logging.ERROR, "part failed", error=error, part="rule:x")
    LOG.warning("of a library: %s", "plain")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["event"], first["part"], first["detail"]) == ("part failed", "rule:x", "KeyError: 'loss'")
    assert first["traceback"].startswith("Traceback")
    assert (second["event"], second["level"]) == ("of a library: plain", "warning")


@pytest.mark.parametrize(
    ("level", "default", "seen"),
    [("", "info", ["i", "w"]), ("", "warning", ["w"]), ("error", "info", []), ("DEBUG", "warning", ["d", "i", "w"])],
)
def test_the_level_is_what_is_said_else_the_verbs(
    logging_as: Set, capsys: pytest.CaptureFixture[str], level: str, default: str, seen: list[str]
) -> None:
    logging_as("json", level, default)
    for name, at in (("d", logging.DEBUG), ("i", logging.INFO), ("w", logging.WARNING)):
        event(LOG, at, name)
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == seen


@pytest.mark.parametrize(("style", "level"), [("xml", ""), ("", "loud")])
def test_a_word_that_is_not_known_is_refused(logging_as: Set, style: str, level: str) -> None:
    with pytest.raises(BadInputError, match="--log-"):
        logging_as(style, level)


@pytest.mark.parametrize("arguments", [["--log-level", "loud", "incidents", "list"], ["agent", "--log-format", "xml"]])
def test_a_wrong_option_is_one_line_and_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_standard_output_stays_clean_and_main_leaves_no_logging_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = str(tmp_path / "ledger.db")
    Ledger(ledger).close()
    assert main(["--log-level", "debug", "--log-format", "json", "pause", "--all", "--for", "1h", "--reason", "x", "--ledger", ledger]) == 0
    captured = capsys.readouterr()
    assert [json.loads(line)["event"] for line in captured.err.splitlines() if line.startswith("{")] == [kinds.PAUSE]
    assert "{" not in captured.out
    event(LOG, logging.INFO, "after")
    assert "after" not in capsys.readouterr().err


def test_what_is_written_to_the_ledger_is_a_line_without_its_nested_records(
    logging_as: Set, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    logging_as("json", "info")
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.append(kinds.BARRED, {"machine": "m1", "reason": "evicted"}, job="llm", incident="llm-1")
        ledger.append(kinds.EVIDENCE, {"machine": "m1", "what": "stacks", "data": {"secret": "x" * 1000}}, job="llm", incident="llm-1")
        ledger.append(kinds.DEGRADED, {"what": "rule:x", "detail": "d", "traceback": "Traceback ..."}, job="llm")
        ledger.intend("op-1", {"action": "restart", "machines": []}, job="llm")
        ledger.intend("op-1", {"action": "restart", "machines": []}, job="llm")
    barred, evidence, degraded, intent = map(json.loads, capsys.readouterr().err.splitlines())
    said = [barred[key] for key in ("event", "job", "incident", "machine", "reason")]
    assert said == ["barred", "llm", "llm-1", "m1", "evicted"]
    assert "data" not in evidence and "traceback" not in degraded and degraded["level"] == "warning"
    assert (intent["event"], intent["operation"]) == ("intent", "op-1")


def test_a_caller_that_is_refused_a_thousand_times_is_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(0.0)
    refused = RefusedCallers(LOG, clock.now_s)
    for _ in range(1000):
        refused.note("10.0.0.9", "token", "/v1/workers")
    refused.note("10.0.0.8", "token", "/v1/workers")
    clock.sleep(61.0)
    refused.note("10.0.0.9", "token", "/v1/workers")
    told = [record.minder_fields for record in caplog.records]  # type: ignore[attr-defined]
    assert [(item["caller"], item["count"]) for item in told] == [("10.0.0.9", 1), ("10.0.0.8", 1), ("10.0.0.9", 1000)]


def test_a_machine_is_lost_once_and_reached_again_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO, "minder.fleet")
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    contacts = ContactLog()
    for _ in range(5):
        contacts.reached("m1", "agent")
    contacts.unheard("m1", "agent", "no answer")  # one answer that is late is no loss
    now[0] += 10.0
    for _ in range(5):
        contacts.unheard("m1", "agent", "no answer")
    contacts.reached("m1", "agent")
    assert [record.getMessage() for record in caplog.records] == ["agent reached", "agent lost", "agent reached"]


def test_an_agent_logs_what_it_does_and_whom_it_refuses(tmp_path: Path) -> None:
    """A real process, as a supervisor runs it."""
    import httpx

    from minder.edge.agent.serve import bind

    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    listener.close()
    words = [sys.executable, "-m", "minder", "agent", "--listen", f"127.0.0.1:{port}", "--log-format", "json", "--run-dir", str(tmp_path)]
    environment: dict[str, Any] = {"PATH": "/usr/bin:/bin", "MINDER_TOKEN": "s3cret-token", "PYTHONPATH": str(Path.cwd())}
    agent = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert agent.stderr is not None
        assert json.loads(agent.stderr.readline())["event"] == "agent listens"
        for token in ("wrong-token", "wrong-token"):
            for _ in range(50):
                try:
                    code = httpx.get(f"http://127.0.0.1:{port}/v1/health?x=1", headers={"Authorization": f"Bearer {token}"}).status_code
                    break
                except httpx.ConnectError:
                    time.sleep(0.1)
            assert code == 401
        agent.terminate()
        out, err = agent.communicate(timeout=20)
    finally:
        agent.kill()
    lines = [json.loads(line) for line in err.splitlines()]
    assert [item["event"] for item in lines if item["event"] != "kernel signal"] == ["caller refused", "signal received"]
    assert (lines[0]["reason"], lines[0]["path"]) == ("token", "/v1/health")
    assert out == "" and "token" not in err.replace('"reason": "token"', "")


@pytest.mark.parametrize("style", ["text", "json"])
def test_what_nothing_caught_is_one_record(style: str, logging_as: Set, capsys: pytest.CaptureFixture[str]) -> None:
    """A thread's end, a warning of a library, and the end of a command by a defect."""

    def fail() -> None:
        raise KeyError("two\nlines")

    logging_as(style)
    thread = threading.Thread(target=fail, name="reader")
    thread.start()
    thread.join()
    warnings.warn("old\nfunction", stacklevel=1)
    try:
        fail()
    except KeyError as error:
        assert crashed(error)
    lines = capsys.readouterr().err.splitlines()
    records = [json.loads(line) if style == "json" else fields(line) for line in lines if not line.startswith("    ")]
    assert [item["event"].split(":")[0] for item in records[::2]] == ["thread ended by an error", "ended by an error"]
    assert (len(records), records[0]["thread"]) == (3, "reader")
    assert "old" in records[1]["event"] and records[1]["logger"] == "py.warnings"
    assert sum("in fail" in line for line in lines) == 2


def test_a_command_that_ends_by_a_defect_says_so_in_its_log(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*unused: Any) -> None:
        raise KeyError("bug")

    monkeypatch.setattr("minder.offline.evaluation.stacks.find_in_stacks", broken)
    with pytest.raises(KeyError):
        main(["stacks", "/nowhere"])
    assert main(["--log-format", "json", "stacks", "/nowhere"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["event"] == "ended by an error"
    assert "KeyError" in json.loads(line)["traceback"]


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_line_for_a_person_is_one_line_whatever_it_quotes(style: str, logging_as: Set, capsys: pytest.CaptureFixture[str]) -> None:
    """A rank's exception with a line break in it began a line of its own, and its colours reached the terminal."""
    logging_as(style, "error")
    say("minder: failed first: rank 1: ValueError: boom\nminder: all is well \x1b[32m")
    (line,) = capsys.readouterr().err.splitlines()
    said = json.loads(line)["detail"] if style == "json" else line
    assert said.removeprefix("minder: ").startswith("failed first: rank 1: ValueError: boom minder: all is well")
    assert line.isprintable() and words_of(line) == said.removeprefix("minder: ")


def test_in_json_a_command_that_fails_is_a_record_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--log-format", "json", "run", "--config", str(tmp_path / "job.toml")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    record = json.loads(line)
    assert (record["event"], record["logger"]) == ("said", "minder") and "job.toml" in record["detail"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_exception_that_has_no_way_out_is_one_record(logging_as: Set, capsys: pytest.CaptureFixture[str]) -> None:
    class Goes:
        def __del__(self) -> None:
            raise KeyError("two\nlines")

    before = sys.unraisablehook
    logging_as("json")
    Goes()
    remove_logging()
    (line,) = capsys.readouterr().err.splitlines()
    record = json.loads(line)
    assert (record["level"], record["event"]) == ("error", "error had no way out") and "__del__" in record["traceback"]
    assert sys.unraisablehook is before
