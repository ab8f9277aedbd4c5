"""What a site or a model may set of the default detector."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DefaultConfig"]


@dataclass(frozen=True, slots=True)
class DefaultConfig:
    """How much evidence convicts, and how it is heard.

    patience_s: how long one fully deviating family of one machine must last to convict it, with the training suffering.
    warmup_s: data needed before anything is said. z_span: from the first deviation that counts to a full one, in usual sizes.
    stayed: weight of "its peers moved and it did not"; came_back: of "it was apart and now stands where they stand".
    leak_s: how fast evidence that has ended is forgotten. smooth_s, slow_s: the two paces at which deviations are smoothed.
    far_z: what is farther off is not learned; relearn_s: after so long it is, as the machine's new usual place, unless it was called
    anomalous.
    effect_boost: how much more evidence weighs while the training is slowed since about then; eager_z: by how much smaller a deviation
    counts then. most_alone, most: the most families heard at once, without and with such an effect: a clock that is off by seconds
    looks like all of them for these seconds.
    least_s: no verdict before the deviation is so old, links_least_s if only the network's metrics show it: links flap and heal;
    lone_least_s if one metric is heard alone: it is off for half a minute now and then.
    lasting_s: what stands apart plainly for so long, alone, is convicted even if it is no plain change and the training is hardly slowed.
    alone: weight of what neither reaches the training nor is a plain change: one such family never convicts, two take long.
    most_at_once: share of what convicts that one row may add; sure_at_once: of a machine that has plainly changed, while the training
    stands and for longer than a clock is off, where samples are far apart, so that two rows convict. kept: share that is left of it if
    all others move right after: where samples are far apart, one machine's shows a job-wide change before the others' do.
    lone_samples: of a family that is heard alone, one row adds no more than convicts after so many samples, times the logarithm of the
    number of series, and only what its newest sample shows: of many series, by chance one is off for a sample or three while the
    training is slowed for another reason.
    together_s: machines that turn odd within this time, or two scrapes, were hit together; they are named after group_least_s at
    group_pace. So long must machines stand apart in a cause of slowness, too.
    """

    patience_s: float = 90.0
    warmup_s: float = 30.0
    z_span: float = 5.0
    stayed: float = 0.35
    came_back: float = 0.2
    leak_s: float = 25.0
    smooth_s: float = 4.0
    slow_s: float = 30.0
    relearn_s: float = 900.0
    far_z: float = 3.5
    effect_boost: float = 3.0
    eager_z: float = 1.0
    most_alone: float = 2.0
    most: float = 4.0
    alone: float = 0.2
    most_at_once: float = 0.4
    sure_at_once: float = 0.51
    kept: float = 0.3
    lone_samples: float = 0.5
    least_s: float = 10.0
    links_least_s: float = 25.0
    lone_least_s: float = 25.0
    lasting_s: float = 180.0
    together_s: float = 10.0
    group_least_s: float = 120.0
    group_pace: float = 0.25
