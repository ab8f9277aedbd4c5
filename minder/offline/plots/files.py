"""A drawn figure as a file."""

from __future__ import annotations

from pathlib import Path

from minder.model.errors import BadInputError

__all__ = ["write_picture"]


def write_picture(data: bytes, path: Path, option: str) -> None:
    """Raises BadInputError that names the option."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise BadInputError(f"{option} {path} cannot be written: {error.strerror}; name a file in a folder that is there") from error
