"""Whose name stands in the audit trail."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from minder.cli import tables
from minder.cli.tables import operator_name

SOMEBODY = next(entry for entry in pwd.getpwall() if entry.pw_uid not in (0, os.getuid()))


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SUDO_USER", "DOAS_USER"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", ["SUDO_USER", "DOAS_USER"])
def test_the_person_behind_sudo_or_doas(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "alice")
    assert operator_name() == "alice"


def test_who_became_root_by_su_is_the_one_who_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(tables, "_LOGIN", tmp_path / "loginuid")
    (tmp_path / "loginuid").write_text(f"{SOMEBODY.pw_uid}\n")
    assert operator_name() == SOMEBODY.pw_name


@pytest.mark.parametrize("login_id", ["4294967295", "", "x", None])
def test_without_a_login_it_is_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, login_id: str | None) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setenv("LOGNAME", "root")
    monkeypatch.setattr(tables, "_LOGIN", tmp_path / "loginuid")
    if login_id is not None:
        (tmp_path / "loginuid").write_text(login_id)
    assert operator_name() == "root"
