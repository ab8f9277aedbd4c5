"""Seeds that are committed to before they are shown: the hash is in a release, the seed follows one release later.

A commitment is the SHA-256 of version, seed and salt, a line each. The salt keeps a short seed from being guessed; the version keeps an
old commitment from being used again.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from minder.model.errors import BadInputError
from minder.model.private import make_private, write_private

__all__ = ["Secret", "derive", "draw_secret", "publish", "read_secret", "write_secret"]


@dataclass(frozen=True, slots=True)
class Secret:
    """The seed of one version's judging part."""

    version: str
    seed: str
    salt: str

    @property
    def commitment(self) -> str:
        """
        >>> Secret("2026.11", "seed", "salt").commitment[:8]
        '8d6fea1c'
        """
        return hashlib.sha256(f"{self.version}\n{self.seed}\n{self.salt}\n".encode()).hexdigest()


def draw_secret(version: str) -> Secret:
    """A fresh one: 256 random bits of seed, and as many of salt."""
    return Secret(version, secrets.token_hex(32), secrets.token_hex(32))


def write_secret(path: Path, secret: Secret) -> None:
    """For its owner alone (0600, its folder 0700). Raises BadInputError where there is a file already: a lost seed cannot be revealed."""
    if path.exists():
        raise BadInputError(f"{path} is there already: a seed that is committed to must not be lost, name a new file")
    make_private(path.parent)
    write_private(path, _text(secret))


def publish(path: Path, secret: Secret) -> None:
    """For everybody: a seed that is revealed."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(_text(secret), encoding="utf-8")


def _text(secret: Secret) -> str:
    return json.dumps(asdict(secret), indent=1) + "\n"


def read_secret(path: Path, commitment: str | None, version: str) -> Secret:
    """The seed of a judging part. commitment: what the release has for this version, None where it has nothing.

    Raises BadInputError for a file that is no seed, is of another version, or is not what was committed to.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        secret = Secret(*(str(data[name]) for name in ("version", "seed", "salt")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{path} is no seed of a judging part ({error}): give a file with version, seed and salt") from error
    if secret.version != version:
        raise BadInputError(f"{path} is the seed of version {secret.version}, the benchmark here is {version}: take that release")
    if commitment is None:
        raise BadInputError(f"the release has no commitment for version {version}: a seed without one proves nothing")
    if secret.commitment != commitment:
        raise BadInputError(f"{path} does not match its commitment ({secret.commitment[:12]} is not {commitment[:12]}): it is another seed")
    return secret


def derive(seed: str, *names: object) -> int:
    """A number of 40 bits for one input, from the part's seed and the input's names.

    >>> derive("a", "telemetry", 1) != derive("a", "telemetry", 2)
    True
    """
    text = "\n".join([seed, *(str(name) for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:5], "big")
