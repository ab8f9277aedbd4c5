"""One way from a world to what live detection gets: samples aligned to rows, and the peers of each machine."""

from __future__ import annotations

from minder.ingest.sources.events import Truth as RecordedTruth
from minder.ingest.windows import align_columns
from minder.model.telemetry import Window
from minder.simulate.worlds.world import World

__all__ = ["peer_groups", "recorded_truth", "window_of"]


def window_of(world: World) -> Window:
    """All rows of a world on a grid of its scrape interval; row t depends on no sample later than t."""
    return align_columns(world, world.interval_s)


def peer_groups(world: World) -> dict[str, object]:
    """Machine to the group whose members do the same work: its pipeline stage, within its role where the world has roles."""
    if not world.roles:
        return dict(world.stages)
    return {name: f"{world.roles.get(name, '')} {world.stages.get(name, 0)}" for name in world.machines}


def recorded_truth(world: World) -> RecordedTruth:
    """The truth as recordings write it: a group's machines are all right answers."""
    truth = world.truth
    named = truth.culprits or truth.group
    first = named[0] if named else None
    onset_s = None if truth.onset_s is None else float(truth.onset_s)  # numpy's own numbers are not JSON's
    return RecordedTruth(f"{world.family}:{world.seed}", truth.fault, first, onset_s, tuple(named))
