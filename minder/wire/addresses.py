"""Addresses to listen on: which of them only this machine can reach."""

from __future__ import annotations

import ipaddress

__all__ = ["is_loopback", "split_loopback"]


def split_loopback(address: str) -> tuple[str, int] | None:
    """ "127.0.0.1:9403" or "[::1]:9403" as host and port; None for what is no address, or can be reached from outside.

    >>> split_loopback("127.0.0.1:9403")
    ('127.0.0.1', 9403)
    """
    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65535 or not is_loopback(host.strip("[]")):
        return None
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether an address or name can be reached from this machine only; a name other than `localhost` is not trusted to be."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
