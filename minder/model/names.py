"""What a job and a machine may be called: names become files, addresses and labels, so they are looked at before anything is made."""

from __future__ import annotations

import re

from minder.model.errors import BadInputError

__all__ = ["JOB_NAME", "check_job_name", "check_machine_name"]

JOB_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"
_MACHINE_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"


def check_job_name(option: str, name: str) -> str:
    """The name, if a job may have it. option: where it was given, for the message. Raises BadInputError.

    >>> check_job_name("--job", "llm-70b")
    'llm-70b'
    >>> check_job_name("--job", "../x")
    Traceback (most recent call last):
    minder.model.errors.BadInputError: --job '../x': letters, digits, '.', '_' and '-' only, a letter or digit first, 63 at most
    """
    return _check(option, name, JOB_NAME.removeprefix("^").removesuffix("$"), 63)


def check_machine_name(option: str, name: str) -> str:
    """The name, if a machine of a launcher may have it. Raises BadInputError."""
    return _check(option, name, _MACHINE_NAME, 128)


def _check(option: str, name: str, pattern: str, longest: int) -> str:
    if not re.fullmatch(pattern, name):
        raise BadInputError(f"{option} {name!r}: letters, digits, '.', '_' and '-' only, a letter or digit first, {longest} at most")
    return name
