from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from minder.cli import main
from minder.record.store.tokens import TokenStore
from minder.wire.tokens import machine_of, read_token, read_tokens

Run = Callable[..., tuple[int, str, str]]


def test_a_token_is_shown_once_listed_and_revoked(run_on_ledger: Run, tmp_path: Path) -> None:
    status, token, said = run_on_ledger("token", "create", "alice", "--role", "operator", "--job", "llm", "--for", "30d")
    assert status == 0 and "operator, llm" in said and token.strip() not in said
    store = TokenStore(tmp_path / "ledger.db")
    record = store.find(token.strip())
    assert record is not None and (record.name, record.role, record.jobs) == ("alice", "operator", ("llm",))
    store.close()
    listed = run_on_ledger("token", "list")[1]
    assert "alice" in listed and "valid until" in listed and token.strip()[-43:] not in listed
    assert run_on_ledger("token", "revoke", "alice", "--reason", "left")[:2] == (0, f"token {record.id} of alice is revoked\n")
    assert "revoked" in run_on_ledger("token", "list")[1]
    status, _, said = run_on_ledger("token", "create", "agent-7", "--role", "agent", "--machine", "node-7")
    assert status == 0 and "speaks for node-7 only" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "a", "--role", "king"), '--role "king": use viewer or operator'),
        (("create", "../a"), 'the name "../a"'),
        (("create", "a", "--job", "x y"), '--job "x y"'),
        (("create", "a", "--for", "soon"), '--for "soon"'),
        (("create", "a", "--role", "agent"), "--machine goes with --role agent"),
        (("create", "a", "--machine", "m1"), "--machine goes with --role agent"),
        (("revoke", "nobody"), "no ledger at"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(run_on_ledger: Run, words: tuple[str, ...], said: str) -> None:
    status, out, err = run_on_ledger("token", *words)
    assert (status, out, err.count("\n")) == (2, "", 1) and said in err


@pytest.mark.parametrize("listen", ["9400", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999", ":²"])
def test_an_address_that_is_none_is_one_line(listen: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--listen", listen]) == 2
    assert "is no address" in capsys.readouterr().err


JOB = """
name = "llm"
{line}
[[machines]]
name = "m0"
agent = "http://10.0.0.1:9401"
[[machines]]
name = "m1"
standby = true
agent = "http://10.0.0.2:9401"
"""


@pytest.mark.parametrize(("line", "folder"), [("", "tokens"), ('machine_token_dir = "secret/here"', "secret/here")])
def test_one_command_makes_the_tokens_of_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, folder: str) -> None:
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(line=line))
    for word in ("made", "kept"):
        assert main(["token", "machine", "--from", str(job)]) == 0
        said = capsys.readouterr()
        assert said.out == "".join(f"{word}  {tmp_path / folder / name}\n" for name in ("m0", "m1"))
        assert ('machine_token_dir = "tokens"' in said.err) == (line == "")
    assert machine_of(read_token(tmp_path / folder / "m1")) == "m1" and read_token(tmp_path / folder / "m1") not in said.out


def test_tokens_of_named_machines_are_made_and_exchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["token", "machine", "m0", "m1"]) == 0
    old = read_token(tmp_path / "tokens" / "m0")
    assert main(["token", "machine", "m0", "--exchange", "--overlap", "2h"]) == 0
    found = read_tokens(tmp_path / "tokens" / "m0")
    assert found.previous == old != found.current and found.until_s == pytest.approx(time.time() + 7200.0, abs=60.0)
    assert main(["token", "machine", "m0", "--exchange", "--overlap", "0"]) == 0
    assert read_tokens(tmp_path / "tokens" / "m0").previous == ""
    assert capsys.readouterr().out.split() == ["made", "tokens/m0", "made", "tokens/m1", *["exchanged", "tokens/m0"] * 2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no machine: give names, or --from"),
        (["../m0"], "machine '../m0'"),
        (["m0", "--overlap", "soon"], '--overlap "soon"'),
        (["--from", "none.toml"], "none.toml"),
        (["m0", "--dir", "file"], "file"),
    ],
)
def test_what_makes_no_token_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert main(["token", "machine", *words]) in (1, 2)
    line = capsys.readouterr().err
    assert said in line and line.count("\n") == 1
