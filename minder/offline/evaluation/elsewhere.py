"""Many recordings at once, each scored by an actor of its own: `minder replay --engine ray`. Its lines are those that it prints without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from minder.diagnose.scoring.ray_scoring import RayScoring
from minder.model.evidence import Verdict
from minder.offline.evaluation.replay import replay
from minder.record.registry.folder import Model

__all__ = ["replay_elsewhere"]

_AT_ONCE = 32  # recordings that are held in memory


def replay_elsewhere(paths: Sequence[Path], until_s: float | None, scoring: RayScoring) -> Iterator[Iterator[Verdict]]:
    """The verdicts of each recording, in the given order. Taking them raises RecordingError, or MinderError if no worker scores."""
    with ThreadPoolExecutor(_AT_ONCE, "minder-replay") as pool:
        found = [pool.submit(_replay, f"{number} {path.resolve().name}", path, until_s, scoring) for number, path in enumerate(paths, 1)]
        try:
            yield from map(_take, found)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _replay(job: str, path: Path, until_s: float | None, scoring: RayScoring) -> list[Verdict]:
    return list(replay(path, until_s, scoring.maker(job, Model("default"))))


def _take(found: Future[list[Verdict]]) -> Iterator[Verdict]:
    yield from found.result()
