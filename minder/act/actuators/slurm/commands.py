"""Slurm's own commands, each under a deadline. What they print is read in `records`; nothing is concluded from silence."""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from typing import Protocol

from minder.model.errors import ActuatorError, EngineUnavailableError
from minder.model.log import event

__all__ = ["Commands", "FencedCommands", "SlurmCommands"]

_log = logging.getLogger("minder.actuators")

# What the commands print when slurmctld itself is what is missing, rather than the node or job that was asked for.
_UNREACHABLE = (
    "unable to contact slurm controller",
    "socket timed out",
    "connection refused",
    "zero bytes were transmitted",
    "protocol authentication error",
    "invalid authentication credential",
    "munge encode failed",
    "in standby mode",
    "no response",
    "could not load slurm configuration",
    "unable to establish configuration source",
)
_READS = (("scontrol", "show"), ("scontrol", "write"), ("sinfo", "-h"), ("squeue", "-h"))


class Commands(Protocol):
    """`call(["scontrol", "show", "node", "n1"])` returns what the command printed.

    Raises EngineUnavailableError if Slurm did not answer in time (whether it did what it was asked is then unknown), and
    ActuatorError if it refused.
    """

    def call(self, words: Sequence[str]) -> str: ...


class SlurmCommands:
    """The commands on the PATH. deadline_s: seconds for each call; conf: a slurm.conf other than Slurm's own choice."""

    def __init__(self, deadline_s: float = 5.0, conf: str | None = None) -> None:
        self._deadline_s = deadline_s
        self._environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
        for name in [name for name in self._environment if name.startswith(("SQUEUE_", "SINFO_", "SCONTROL_"))]:
            del self._environment[name]  # a user's own formats and filters would change what is read
        if conf is not None:
            self._environment["SLURM_CONF"] = conf

    def call(self, words: Sequence[str]) -> str:
        try:
            done = subprocess.run(
                list(words), env=self._environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=self._deadline_s, check=False, cwd=tempfile.gettempdir(),
            )  # fmt: skip
        except FileNotFoundError as error:
            raise ActuatorError(f"{words[0]} is not on the PATH: install Slurm's client commands where the controller runs") from error
        except subprocess.TimeoutExpired as error:
            raise EngineUnavailableError(f"Slurm did not answer `{' '.join(words[:3])}` within {self._deadline_s:g} s") from error
        except (OSError, ValueError) as error:
            raise ActuatorError(f"`{' '.join(words[:3])}` cannot be run: {error}") from error
        if done.returncode == 0:
            return done.stdout
        detail = _one_line(done.stderr) or _one_line(done.stdout) or f"exit status {done.returncode}"
        if any(text in detail.lower() for text in _UNREACHABLE):
            raise EngineUnavailableError(f"Slurm does not answer `{' '.join(words[:3])}`: {detail}")
        raise ActuatorError(f"Slurm refused `{' '.join(words[:4])}`: {detail}")


class FencedCommands:
    """Commands that change something only where `confirm` does not raise: Slurm knows no fencing token, so whether this controller still
    leads is read last, after everything that an operation reads and waits for."""

    def __init__(self, commands: Commands, confirm: Callable[[], None]) -> None:
        self._commands, self._confirm = commands, confirm

    def call(self, words: Sequence[str]) -> str:
        if tuple(words[:2]) not in _READS:
            self._confirm()
            event(_log, logging.INFO, "engine asked", engine="slurm", command=" ".join(words[:4]))
        return self._commands.call(words)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
