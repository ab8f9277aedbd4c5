"""Bearer tokens."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from minder.model.errors import ConfigError
from minder.wire.tokens import is_authorised, read_token, write_token


def test_a_written_token_is_private_random_and_read_back(tmp_path: Path) -> None:
    token = write_token(tmp_path / "token")
    assert read_token(tmp_path / "token") == token
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert write_token(tmp_path / "token") != token


def test_a_token_that_everybody_may_read_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_token(tmp_path / "token")


def test_a_token_written_over_a_public_file_is_private_too(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    (tmp_path / "token").chmod(0o644)
    token = write_token(tmp_path / "token")
    assert read_token(tmp_path / "token") == token


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_no_token_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
        (tmp_path / "token").chmod(0o600)
    with pytest.raises(ConfigError, match="token file"):
        read_token(tmp_path / "token")


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer secre", "Bearer secret2", "secret", "bearer secret", "Bearer sécret"]
)
def test_only_the_exact_token_is_authorised(header: str | None) -> None:
    assert not is_authorised(header, "secret")
    assert is_authorised("Bearer secret", "secret")
