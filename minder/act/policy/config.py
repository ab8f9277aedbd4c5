"""What a site may set about decisions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from minder.act.policy.ladder import LadderConfig, read_ladder
from minder.model.errors import ConfigError

__all__ = ["PolicyConfig"]

_WHOLE = (
    "max_skipped_batches",
    "max_restarts",
    "progress_steps",
)
_OPEN = (  # not set: as job and settings give it
    "max_restarts_per_day",
    "max_evictions_per_job",
    "max_evictions_per_day",
    "max_evictions_per_hour",
    "max_machines_per_hour",
)
_SECONDS = (
    "breaker_window_s",
    "cooldown_s",
    "domain_window_s",
    "operation_timeout_s",
    "response_s",
    "slowdown_horizon_s",
    "assumed_unsaved_s",
    "approval_timeout_s",
    "trial_s",
    "progress_s",
    "restart_hung_after_s",
    "start_limit_s",
    "diagnose_limit_s",
    "replay_limit_s",
    "alignment_after_s",
    "rollback_within_s",
    "update_within_s",
)
_WORDS = {
    "approval": ("none", "required"),
    "approval_on_timeout": ("page", "reject", "approve"),
    "rollback": ("off", "auto"),
    "skip_batches": ("off", "auto"),
}
_CAUSES = ("stall", "slowdown", "absence", "explicit", "numeric", "unknown")


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Limits of the policy. Raises ConfigError for a value that makes no sense."""

    # Decide and record, but evict no machine and end no living worker. Starting the job's own dead workers again follows max_restarts.
    dry_run: bool = True
    # Restarts in a row, without progress between them, before the next failure ends the job.
    max_restarts: int = 3
    # Progress: a generation is so many steps, and so many seconds, past the step at which the one before failed. Restarts count anew.
    progress_steps: int = 100
    progress_s: float = 600.0
    # How often one machine fails in a day. Limits that are not set follow from it: as many as so many machines fail in that time, and three
    # standard deviations of it.
    failures_per_machine_day: float = 0.0012
    # More restarts than this within 24 hours are paged; the job goes on. If not set: as its machines fail in a day, and at least 12.
    max_restarts_per_day: int | None = None
    # After a second unknown failure of one machine another takes its ranks for so long, to see whether the failure follows them; 0: never.
    trial_s: float = 3600.0
    # Evictions of the job in its whole run; one more is paged. A parallel group that goes as a whole is one eviction. If not set: as its
    # machines fail in the time that it has run, and at least 8.
    max_evictions_per_job: int | None = None
    # The same within any 24 hours. If not set: as its machines fail in a day, at least 8, and at least the hour's.
    max_evictions_per_day: int | None = None
    # The same within any hour. If not set: as its machines fail in an hour, and at least 4.
    max_evictions_per_hour: int | None = None
    # Machines of the job evicted within any hour; one more is paged. If not set: twice the largest parallel group that the
    # breaker lets pass, and at least the hour's evictions.
    max_machines_per_hour: int | None = None
    # Never more than this share of the job's machines evicted within the window (at least one may be, in a small job).
    breaker_share: float = 0.25
    # Seconds of that window.
    breaker_window_s: float = 600.0
    # A job that hangs and of which no machine may be evicted is restarted in place after so long, or after 20 of its steps if that is
    # longer; 0: never. Before the first step of a generation, and where stacks cannot be read, start_limit_s holds instead.
    restart_hung_after_s: float = 300.0
    start_limit_s: float = 1800.0
    # A job that is tested while it stands goes on after so long at most, whatever is not judged by then; after twice as long where numbers
    # are in doubt, or a fault waits for its second look.
    diagnose_limit_s: float = 180.0
    # A job that is replayed on groups of its machines goes on after so long at most.
    replay_limit_s: float = 1800.0
    # The tests of a job that computed wrong numbers include bit-wise alignment; those of another one only at its first stop after it has
    # run, and was not tested so, for this long; 0: at every stop.
    alignment_after_s: float = 86_400.0
    # After a restart, verdicts wait for so long; except of these causes, which no start-up looks like.
    cooldown_s: float = 60.0
    cooldown_exempt: tuple[str, ...] = ("explicit", "numeric")
    # Suspects within this window that share one of these are one trouble of what they share.
    domain_kinds: tuple[str, ...] = ("rack", "switch")
    domain_window_s: float = 300.0
    # An action without a result for so long is paged and no longer waited for.
    operation_timeout_s: float = 900.0
    # How long a stopped job would stand until a person acts.
    response_s: float = 1800.0
    # For how long a slow one would go on being slow.
    slowdown_horizon_s: float = 86_400.0
    # Share of speed taken as lost where it could not be measured.
    assumed_slowdown_share: float = 0.1
    # Work taken as lost by a restart where neither a checkpoint's manifest nor a declared checkpoint phase says it.
    assumed_unsaved_s: float = 900.0
    # Act only where waiting costs at least so many times what acting costs.
    break_even: float = 1.0
    # Evict machines on which other jobs run too (each decision lists them).
    allow_shared_machines: bool = False
    # "required": an eviction waits so long for an operator (`minder decision`); then "page" or "reject" (nothing is evicted), or "approve".
    approval: str = "none"
    approval_timeout_s: float = 900.0
    approval_on_timeout: str = "page"
    # "auto": the rung `rollback` takes the last update of the job's code back, for a failure that was first seen after it; "off": a person
    # does (`minder job rollback`).
    rollback: str = "off"
    # So long after an update a new failure may be taken for its.
    rollback_within_s: float = 3600.0
    # An update that waits for a restart gets one of its own after so long.
    update_within_s: float = 86_400.0
    # "auto": the rung `skip_batch` leaves out a batch that made the numbers of all ranks go wrong twice, or of one rank on two machines:
    # back to a checkpoint from before it, and on without it. "off": a person does (`minder job skip`).
    skip_batches: str = "off"
    # After so many batches within 24 hours, those that a person ordered among them, minder leaves out no other by itself: it pages.
    max_skipped_batches: int = 8
    # The rungs, in order: the table [policy.ladder], below.
    ladder: LadderConfig = field(default_factory=LadderConfig)

    def __post_init__(self) -> None:
        for name in ("dry_run", "allow_shared_machines"):
            _demand(isinstance(getattr(self, name), bool), name, getattr(self, name), "true or false")
        for name in (*_WHOLE, *(name for name in _OPEN if getattr(self, name) is not None)):
            value = getattr(self, name)
            _demand(_is_number(value) and value == int(value) and value >= 0, name, value, "a whole number of 0 or more")
        for name in (*_SECONDS, "break_even", "failures_per_machine_day"):
            value = getattr(self, name)
            _demand(_is_number(value) and value >= 0, name, value, "a number of 0 or more")
        for name in ("breaker_share", "assumed_slowdown_share"):
            value = getattr(self, name)
            _demand(_is_number(value) and 0 < value <= 1, name, value, "a share above 0 and up to 1")
        for name in ("cooldown_exempt", "domain_kinds"):
            value = getattr(self, name)
            _demand(isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value), name, value, "a list of words")
            object.__setattr__(self, name, tuple(value))
        for name, words in _WORDS.items():
            _demand(getattr(self, name) in words, name, getattr(self, name), " or ".join(f'"{word}"' for word in words))
        object.__setattr__(self, "ladder", read_ladder(self.ladder))
        unknown = [cause for cause in self.cooldown_exempt if cause not in _CAUSES]
        _demand(not unknown, "cooldown_exempt", self.cooldown_exempt, f"causes out of {', '.join(_CAUSES)}")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> PolicyConfig:
        """From a configuration table. Raises ConfigError for an unknown key.

        >>> PolicyConfig.from_mapping({"dry_run": False, "max_restarts": 1}).max_restarts
        1
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise ConfigError(f"policy.{name} is not a setting: use one of {', '.join(known)}")
        return cls(**values)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _demand(holds: bool, name: str, value: Any, wanted: str) -> None:
    if not holds:
        raise ConfigError(f"policy.{name} is {value!r}: give {wanted}")
