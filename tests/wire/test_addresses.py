"""Which addresses only this machine can reach: a token is demanded for all others."""

from __future__ import annotations

import pytest

from minder.wire.addresses import is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_only_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "192.168.1.1", "localhost.example.org", "node-1", ""])
def test_other_machines_too(host: str) -> None:
    assert not is_loopback(host)
