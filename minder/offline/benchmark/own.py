"""minder as an entry of the benchmark: `python -m minder.offline.benchmark.own [DETECTOR] FOLDER` prints what RULES.md asks for."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from minder.model.errors import BadInputError, RuleFailedError
from minder.offline.benchmark.answers import Said, lines_of

__all__ = ["say"]

_UNKNOWN = (Said((), "unknown"),)


def say(folder: Path, detector: str = "default") -> tuple[Said, ...]:
    """What minder says of one input. detector: of recordings. What it cannot read or judge is "unknown", which is never "none"."""
    part = folder.name.partition("-")[0]
    try:
        if part == "stacks":
            return _stacks(folder)
        return _dumps(folder) if part == "dumps" else _recording(folder, detector)
    except (BadInputError, RuleFailedError) as error:
        print(f"minder: {error}", file=sys.stderr)
        return _UNKNOWN


def _stacks(folder: Path) -> tuple[Said, ...]:
    from minder.offline.evaluation.stacks import find_in_stacks

    found = find_in_stacks(folder)
    if found.evict:
        return (Said(found.evict),)
    return _UNKNOWN if found.blame == "unknown" else (Said((), "none"),)


def _dumps(folder: Path) -> tuple[Said, ...]:
    from minder.offline.evaluation.collectives import collectives_document

    found = collectives_document(folder)
    if found["suspect_ranks"]:
        return (Said(tuple(found["suspect_ranks"])),)
    return _UNKNOWN if found["cause"] == "unknown" else (Said((), "none"),)


def _recording(folder: Path, detector: str) -> tuple[Said, ...]:
    from minder.diagnose.load_detector import load_detector
    from minder.ingest.sources.recording import read_recording
    from minder.offline.evaluation.judged import not_judged
    from minder.offline.evaluation.replay import replay_recording
    from minder.offline.evaluation.scoring import accusations

    recording = read_recording(folder)
    named = accusations(replay_recording(recording, None, load_detector(detector)))
    if named:
        return tuple(Said(item.machines, None, item.time_s) for item in named)
    return _UNKNOWN if not_judged(recording) else (Said((), "none"),)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    *chosen, last = sys.argv[1:]
    place = Path(last)
    print(lines_of(place.name, say(place, *chosen[:1])), end="")
