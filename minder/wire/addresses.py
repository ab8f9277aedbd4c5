"""Addresses: to listen on, which of them only this machine can reach, and the hosts of connections."""

from __future__ import annotations

import ipaddress

from minder.model.errors import BadInputError

__all__ = ["host_of", "is_loopback", "parse_address"]


def parse_address(text: str, what: str, example: str) -> tuple[str, int]:
    """Host and port of "HOST:PORT" or "[IPV6]:PORT"; ":PORT" is on 127.0.0.1. what: the option or key that says so. Raises BadInputError.

    >>> parse_address("[::1]:9401", "--listen", "127.0.0.1:9401")
    ('::1', 9401)
    """
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise BadInputError(f'{what} "{text}" is no address: give one like {example}')
    return host.strip("[]") or "127.0.0.1", int(port)


def host_of(address: str) -> str:
    """The IP of an end of a connection, which the kernel names "IP:PORT" or "[IPV6]:PORT"."""
    return address.rsplit(":", 1)[0].strip("[]")


def is_loopback(host: str) -> bool:
    """Whether an address or name can be reached from this machine only; a name other than `localhost` is not trusted to be."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
