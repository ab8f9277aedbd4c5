"""How well minder did in a period: five figures, each with what it means and what is not known of it."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from minder.record.api.fields import Answer

__all__ = ["DEFINITIONS", "DetectionTimes", "KnownShare", "TrackRecordFigures"]

DEFINITIONS: Mapping[str, str] = {
    "detection": "From a fault, as the verdict dates it, to the first verdict of its incident that names a machine or group, in seconds.",
    "false_isolation": "Of the evicted machines whose outcome is known, those in which a test or a person found no fault. A person's word "
    "goes first.",
    "recovery": "Of the recoveries that are over, those after which the job stepped again, with no approval or order of a person. One "
    "whose generation never stepped has failed. A restart for new code, more machines or skipped batches recovers nothing.",
    "returned": "Of the machines that were given back after an eviction, a week ago or more, those that were not evicted again within "
    "that week. Until it is over nothing is known of a machine.",
    "signals": "Of the signals that machines and other systems reported to controllers, those that every verdict rule judged.",
}


class DetectionTimes(Answer):
    """Seconds, over the incidents that name a machine or a group and date their fault."""

    median_s: float | None = Field(description="Half of the incidents took no longer; null without any.")
    p95_s: float | None = Field(description="95 % of the incidents took no longer; null without any.")
    incidents: int = Field(description="Number of incidents that it was taken of.")
    undated: int = Field(description="Incidents whose verdict does not say since when: they are in no number.")


class KnownShare(Answer):
    """A share of what is known."""

    share: float | None = Field(description="0 to 1; null where nothing is known, which is not zero.")
    low: float = Field(description="Lower end of its exact interval (95 %, Clopper and Pearson).")
    high: float = Field(description="Upper end of the same.")
    part: int = Field(description="How many.")
    whole: int = Field(description="Of how many that are known.")
    unknown: int = Field(description="How many more there are of which it is not known yet.")


class TrackRecordFigures(Answer):
    """The five figures of a period."""

    since: str = Field(description="Begin of the period, ISO 8601 in UTC.")
    until: str = Field(description="Its end.")
    detection: DetectionTimes = Field(description=DEFINITIONS["detection"])
    false_isolation: KnownShare = Field(description=DEFINITIONS["false_isolation"])
    false_by_test: KnownShare = Field(description="The same, by what tests found alone.")
    false_by_person: KnownShare = Field(description="The same, by what people found alone.")
    recovery: KnownShare = Field(description=DEFINITIONS["recovery"])
    with_person: int = Field(description="Recoveries that a person approved or ordered: they are no automatic success.")
    returned: KnownShare = Field(description=DEFINITIONS["returned"])
    returned_again: int = Field(description="Machines that were evicted again, of those given back less than a week ago.")
    signals: KnownShare = Field(description=DEFINITIONS["signals"])
    lost: Mapping[str, int] = Field(
        description="Signals that were lost, by why: machine (its queue was full), too_many, unreadable, queue (too many waited), rule "
        "(a rule raised)."
    )
