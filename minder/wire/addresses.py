"""Addresses to listen on: which of them only this machine can reach, and the socket there."""

from __future__ import annotations

import ipaddress
import socket

__all__ = ["is_loopback", "listen_on"]


def is_loopback(host: str) -> bool:
    """Whether an address or name can be reached from this machine only; a name other than `localhost` is not trusted to be."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen_on(host: str, port: int) -> socket.socket:
    """A socket that listens on exactly this address: a caller who reads the address may call at once. Raises OSError."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener
