from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from minder.cli import main
from minder.record.store.tokens import TokenStore

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
