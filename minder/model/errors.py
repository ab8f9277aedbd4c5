"""Every exception that minder raises on purpose, on one page.

Each message is one line that says what is wrong, where, and how to mend it: the CLI prints it as it is.
"""

from __future__ import annotations

import importlib.util


class MinderError(Exception):
    """Base class. Exit status 1 at the command line: the command itself failed."""

    exit_code = 1


class BadInputError(MinderError):
    """The user's input or usage is wrong. Exit status 2."""

    exit_code = 2


class ConfigError(BadInputError):
    """A configuration file or value is wrong."""


class RecordingError(BadInputError):
    """A recording cannot be read (docs/recordings.md)."""


class TraceError(BadInputError):
    """A step trace or its job file cannot be read, or they contradict each other (docs/step-traces.md)."""


class SourceError(MinderError):
    """A telemetry source did not answer, or answered nonsense. The tick has no data; it is never "healthy". mend: what to do."""

    def __init__(self, message: str = "", mend: str = "") -> None:
        super().__init__(f"{message}: {mend}" if mend else message)
        self.seen, self.mend = message, mend


class IdentityError(BadInputError):
    """A telemetry target maps to no machine, or two targets map to one."""


class WireError(MinderError):
    """An agent or a launcher did not answer, refused, or answered something else than the protocol."""


class ScoringLostError(MinderError):
    """What scores the telemetry elsewhere did not answer: nothing is known of it, which is never "healthy"."""


class RuleFailedError(MinderError):
    """A verdict rule raised in a replay: the other rules' verdicts stand, what it would have said is unknown."""


class NoAnswerError(WireError):
    """Nothing listens there, or what came is no whole answer: silence, and no refusal."""


class LedgerError(MinderError):
    """The ledger cannot be read or written: nothing may be acted on."""


class LeaseLostError(LedgerError):
    """Another controller leads the job: this one may write and do nothing more."""


class CheckpointError(MinderError):
    """No complete, verified checkpoint, or one could not be published."""


class DataError(MinderError):
    """A job's data cannot be given out as planned, or a state or a log is of another plan (docs/data.md)."""


class RecoveryError(MinderError):
    """The job could not be brought back (no standby, launcher gone, deadline passed)."""


class ActuatorError(MinderError):
    """A machine could not be taken away, or it is unknown whether it was."""


class EngineUnavailableError(ActuatorError):
    """The scheduler that owns the machines did not answer in time: nothing is known, and nothing is concluded."""


class EngineRefusalError(ActuatorError):
    """The scheduler refused a request. status: of its HTTP answer; causes: the reasons that came with it."""

    def __init__(self, message: str, status: int, causes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.causes = causes


class LabError(MinderError):
    """The local lab could not be built on this machine."""


class UnsupportedFaultError(BadInputError):
    """A fault was asked for that this machine cannot inject, with the reason."""


class MissingExtraError(BadInputError):
    """An optional dependency is not installed; the message names the extra."""

    @classmethod
    def of(cls, module: str, extra: str) -> MissingExtraError:
        return cls(f"{module} is not installed: run `pip install 'minder-cluster[{extra}]'`")

    @classmethod
    def demand(cls, module: str, extra: str) -> None:
        """Raises itself where the module is not installed. It is looked for only, not loaded: said before anything waits for it."""
        if importlib.util.find_spec(module) is None:
            raise cls.of(module, extra)
