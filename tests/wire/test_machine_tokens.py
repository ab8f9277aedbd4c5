"""A token for each machine: made private, read again when it changes, shown to its own machine only, exchanged without a gap."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.model.errors import BadInputError, ConfigError, WireError
from minder.wire import token_files
from minder.wire.client import Endpoint, MachineClient, MachineEndpoints
from minder.wire.fleet import Fleet
from minder.wire.machine_tokens import MachineTokens, give_token, machine_token
from minder.wire.own_token import own_token, warn_of_shared
from minder.wire.plain import PlainHttp
from minder.wire.token_files import TokenFile, admits
from minder.wire.tokens import Tokens, machine_of, read_token, read_tokens, write_token, write_tokens

Make = Callable[..., Any]


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_each_machine_gets_a_private_file_with_a_token_that_names_it(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "tokens"
    assert [give_token(folder, name) for name in ("m0", "m1", "m0")] == ["made", "made", "kept"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    tokens = [read_token(folder / name) for name in ("m0", "m1")]
    assert [machine_of(token) for token in tokens] == ["m0", "m1"] and tokens[0][-32:] != tokens[1][-32:]


@pytest.mark.parametrize("name", ["", "../m0", "a/b", ".", "x y"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInputError, match="letters, digits"):
        give_token(tmp_path / "tokens", name)
    with pytest.raises(ConfigError, match="letters, digits"):
        machine_token(tmp_path, name)


def test_an_exchange_keeps_the_token_before_for_the_stated_time(tmp_path: Path) -> None:
    give_token(tmp_path, "m0")
    before = read_token(tmp_path / "m0")
    assert give_token(tmp_path, "m0", exchange=True, overlap_s=60.0) == "exchanged"
    found = read_tokens(tmp_path / "m0")
    assert found.current != before and found.in_force(time.time()) == (found.current, before)
    assert found.in_force(time.time() + 61.0) == (found.current,)
    give_token(tmp_path, "m0", exchange=True)  # stolen: the old one counts no more
    assert found.current not in (tmp_path / "m0").read_text()


@pytest.mark.parametrize(
    "rest", ["second-token", "old until tomorrow", "old until 2026-11-27T06:00:00Z\nmore", "old unto 2026-11-27T06:00:00Z"]
)
def test_a_second_line_says_until_when_or_is_refused(tmp_path: Path, rest: str) -> None:
    file = tmp_path / "m0"
    file.write_text(f"new\n{rest}\n")
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="second line must be `TOKEN until"):
        read_tokens(file)


def test_a_file_is_read_again_and_one_that_cannot_be_used_keeps_its_last_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_tokens(tmp_path / "m0", Tokens("first"))
    file = TokenFile(tmp_path / "m0", "m0")
    write_tokens(tmp_path / "m0", Tokens("second", "first", time.time() + 60.0))
    file.look()
    assert file.in_force() == ("second", "first") and admits(file, "Bearer first") and not admits(file, "Bearer third")
    (tmp_path / "m0").write_text("")
    for _ in range(3):
        file.look()
    assert file.current == "second"
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == ["token file not usable"]
    write_tokens(tmp_path / "m0", Tokens("third"))
    file.look()
    assert file.in_force() == ("third",)


def test_the_file_is_looked_at_without_being_asked(tmp_path: Path, until: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_files, "_EVERY_S", 0.02)
    monkeypatch.setattr(token_files, "_watch", token_files._Watch())
    write_tokens(tmp_path / "m0", Tokens("first"))
    file = TokenFile(tmp_path / "m0")
    write_tokens(tmp_path / "m0", Tokens("second"))
    until(lambda: file.current == "second")


def test_the_token_of_another_machine_is_refused_on_both_sides(tmp_path: Path) -> None:
    give_token(tmp_path, "m0")
    (tmp_path / "m0").rename(tmp_path / "m1")
    with pytest.raises(ConfigError, match="holds the token of m0, not of m1"):
        machine_token(tmp_path, "m1")
    with pytest.raises(ConfigError, match="holds the token of m0, not of m1"):
        own_token(tmp_path / "m1", "m1")
    with pytest.raises(BadInputError, match="MINDER_TOKEN holds the token of m0, not of m1"):
        own_token(None, "m1", {"MINDER_TOKEN": read_token(tmp_path / "m1")})


def test_what_is_missing_or_open_names_the_key_and_the_remedy(tmp_path: Path) -> None:
    tokens = MachineTokens("machine_token_dir", str(tmp_path / "tokens"), "agent_token_file", None)
    with pytest.raises(ConfigError, match=r"^machine_token_dir: no token of m0 in .*: run `minder token machine m0 --dir "):
        tokens.of("m0")
    give_token(tmp_path / "tokens", "m0")
    (tmp_path / "tokens" / "m0").chmod(0o644)
    with pytest.raises(ConfigError, match=r"^machine_token_dir: .*chmod 600"):
        tokens.of("m0")
    (tmp_path / "tokens" / "m0").chmod(0o600)
    (tmp_path / "tokens").chmod(0o777)
    with pytest.raises(ConfigError, match=r"^machine_token_dir: .*chmod 700"):
        tokens.of("m0")


def test_each_machine_is_shown_its_own_token_and_no_other(peer: Make, tmp_path: Path, until: Make) -> None:
    peers = []
    for name in ("m0", "m1"):
        give_token(tmp_path, name)
        peers.append(peer(name, token=read_token(tmp_path / name)))
    endpoints = [Endpoint(item.url, machine_token(tmp_path, item.machine)) for item in peers]
    fleet = Fleet([MachineEndpoints(item.machine, at, at) for item, at in zip(peers, endpoints, strict=True)])
    fleet.start()
    try:
        until(lambda: all(view.agent_age_s is not None and view.launcher_age_s is not None for view in fleet.views().values()))
        fleet.post_workers({"m0": {}, "m1": {}})
    finally:
        fleet.stop()
    assert [item.shown for item in peers] == [{item.token} for item in peers]


def test_an_exchange_leaves_no_gap_whichever_side_has_the_new_file_first(peer: Make, tmp_path: Path) -> None:
    give_token(tmp_path, "m0")
    old = read_token(tmp_path / "m0")
    machine, file = peer("m0", token=old), TokenFile(tmp_path / "m0")
    give_token(tmp_path, "m0", exchange=True, overlap_s=60.0)
    new = read_token(tmp_path / "m0")
    assert all(admits(TokenFile(tmp_path / "m0"), f"Bearer {token}") for token in (old, new)), "the machine has it first"

    async def ask() -> None:
        with contextlib.closing(PlainHttp()) as http:
            client = MachineClient(MachineEndpoints("m0", Endpoint(machine.url, file), Endpoint(machine.url, file)), http)
            file.look()  # the controller has it first: the machine knows the old one only
            assert await client.health(5.0) and (await client.workers({}, 5.0))["outcome"] == "done"
            machine.token = new
            assert await client.health(5.0) and (await client.workers({}, 5.0))["outcome"] == "done"
            machine.token = "another"
            with pytest.raises(WireError, match="401"):
                await client.workers({}, 5.0)

    asyncio.run(ask())
    assert machine.shown == {old, new}


def test_a_shared_token_still_works_with_one_line_and_a_machines_own_has_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_token(tmp_path / "shared")
    give_token(tmp_path, "m0")
    log = logging.getLogger("minder.test")
    for name in ("m0", "shared"):
        token = own_token(tmp_path / name, "m0")
        assert token is not None and admits(token, f"Bearer {read_token(tmp_path / name)}")
        warn_of_shared(token, "m0", log)
    (line,) = [record for record in caplog.records if record.getMessage() == "shared token"]
    assert "minder token machine m0" in line.minder_fields["detail"]  # type: ignore[attr-defined]
