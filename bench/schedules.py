"""Simulated schedules by the thousand: the real controller against machines that do not exist (tests/fakes), every invariant at each.

    python bench/schedules.py --first 1000 --count 2000 --shrink
    python bench/schedules.py --replay '{"seed": 3, "actions": [...], ...}'

Prints each schedule that broke an invariant as one line that --replay takes, made as small as it goes with --shrink; then how many were
played in a minute of one core, and what was found. Exit status 1 if anything was.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

FAKES = Path(__file__).resolve().parents[1] / "tests" / "fakes"


def broken(scene: Any, schedule: Any, ledger: Path) -> tuple[list[str], Any]:
    """(what did not hold, the schedule's scene); an exception of the product is something that does not hold."""
    try:
        played = scene.play(schedule, ledger)
    except Exception as error:  # noqa: BLE001 - that is a finding, and the next schedule is played
        return [f"nothing raises: {type(error).__name__}: {error}"], None
    return played.watch.broken, played


def invariant(line: str) -> str:
    return line.split(":", 1)[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--shrink", action="store_true", help="leave out of a schedule what it does not need to fail")
    parser.add_argument("--replay", default="", help="one schedule, as it was printed: its story is printed too")
    parser.add_argument("--out", type=Path, help="write the numbers there as JSON")
    options = parser.parse_args()
    sys.path.append(str(FAKES))
    import scene
    from schedule import Schedule, draw, shrink

    logging.disable(logging.CRITICAL)
    drawn = [Schedule.read(options.replay)] if options.replay else [draw(options.first + number) for number in range(options.count)]
    found, begun_s = Counter[str](), time.process_time()
    with scene.simulated() as ledger:
        for schedule in drawn:
            lines, played = broken(scene, schedule, ledger)
            if options.replay and played is not None:
                print("\n".join(played.trace))
            for line in dict.fromkeys(lines):
                print(f"seed {schedule.seed}: {line}", flush=True)
            if not lines:
                continue
            found[invariant(lines[0])] += 1
            if options.shrink:
                kept = invariant(lines[0])
                schedule = shrink(schedule, lambda item: any(invariant(line) == kept for line in broken(scene, item, ledger)[0]))  # noqa: B023
            print(schedule.text(), flush=True)
    spent_s = time.process_time() - begun_s
    numbers = {"schedules": len(drawn), "per_minute": round(60 * len(drawn) / spent_s), "found": dict(found)}
    print(json.dumps(numbers))
    if options.out is not None:
        options.out.write_text(json.dumps(numbers) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
