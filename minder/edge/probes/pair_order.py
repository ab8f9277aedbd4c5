"""What an order of the probe `pair` carries beside its id and hash: where the two meet, which listens, and the secret of this meeting."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from minder.model.errors import BadInputError

__all__ = ["PairOrder", "new_meeting", "parse_pair"]

Role = Literal["listen", "connect"]
_SECRET = re.compile(r"[0-9a-f]{32,128}")
_LEAST_PORT = 1024
_PORTS = (20000, 30000)  # below those that the kernel hands out
_EXAMPLE = '{"own": "10.0.0.1", "peer": "10.0.0.2", "port": 29600, "role": "listen", "generation": 3, "secret": "..."}'


@dataclass(frozen=True, slots=True)
class PairOrder:
    """own, peer: addresses of the two on the network of the job. port: where `listen` listens, on `own` only, and whence `connect` is
    expected. generation: of the job, so that an order of an earlier one meets no peer. secret: hexadecimal, for this meeting only: a caller
    without it is turned away. collective: also an all-gather by torch.distributed, where both have torch; gpus_only: and only
    where both have GPUs, whose links TCP does not use."""

    own: str
    peer: str
    port: int
    role: Role
    generation: int
    secret: str = field(repr=False)
    collective: bool = True
    gpus_only: bool = False

    def options(self) -> dict[str, Any]:
        """As the program reads them; they go through its standard input, where no other process sees the secret."""
        return dataclasses.asdict(self)


def new_meeting(
    addresses: tuple[str, str], generation: int, port: int | None = None, collective: bool = True, gpus_only: bool = False
) -> tuple[PairOrder, PairOrder]:  # fmt: skip
    """The orders of the one that listens, which is the first, and of its caller, with a secret that no other meeting has. port: a random
    one of 20000 to 29999, if not given."""
    shared = (port or _PORTS[0] + secrets.randbelow(_PORTS[1] - _PORTS[0]), generation, secrets.token_hex(32))
    first, second = addresses
    return (
        PairOrder(first, second, shared[0], "listen", *shared[1:], collective, gpus_only),
        PairOrder(second, first, shared[0], "connect", *shared[1:], collective, gpus_only),
    )


def parse_pair(item: Any) -> PairOrder:
    """From a decoded JSON object. Raises BadInputError that names the field."""
    if not isinstance(item, Mapping):
        raise BadInputError(f"pair must be an object such as {_EXAMPLE}")
    role, secret, collective = item.get("role"), item.get("secret"), item.get("collective", True)
    if role not in ("listen", "connect"):
        raise BadInputError(f"pair.role is {role!r}: listen or connect")
    if not isinstance(secret, str) or not _SECRET.fullmatch(secret):
        raise BadInputError("pair.secret must be 32 to 128 hexadecimal digits, made for this meeting only")
    gpus_only = item.get("gpus_only", False)
    for name, value in (("collective", collective), ("gpus_only", gpus_only)):
        if not isinstance(value, bool):
            raise BadInputError(f"pair.{name} is {value!r}: true or false")
    port = _whole("port", item.get("port"), _LEAST_PORT, 65535)
    own, peer = (_address(name, item.get(name)) for name in ("own", "peer"))
    if (":" in own) != (":" in peer):
        raise BadInputError(f"pair.own is {own} and pair.peer is {peer}: both must be IPv4, or both IPv6")
    return PairOrder(own, peer, port, role, _whole("generation", item.get("generation"), 0, 2**53), secret, collective, gpus_only)


def _address(name: str, value: Any) -> str:
    """One host's address: what would listen on every interface is none."""
    try:
        found = ipaddress.ip_address(value if isinstance(value, str) else "")
    except ValueError:
        raise BadInputError(f"pair.{name} is {value!r}: an address such as in {_EXAMPLE}") from None
    if found.is_unspecified or found.is_multicast:
        raise BadInputError(f"pair.{name} is {value}: the address of one machine is needed")
    return str(found)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadInputError(f"pair.{name} is {value!r}: a whole number from {least} to {most}")
    return value
