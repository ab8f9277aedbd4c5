"""A job that trains while faults of all kinds strike it, one every minute or two, sometimes two at once; what must hold is code.

    python bench/chaos.py [--seed 0] [--minutes 20] [--every 60,120] [--until N] [--kinds hang,xid] [--shrink] [--out bench-out/chaos]

Six machines and three standbys of the lab as processes, state in their memory, a Prometheus where there is one, two controllers in line,
the ledger on a small disk of its own (or --ledger postgresql://...). What strikes is drawn from the seed (chaos_lab/schedule.py), so
`--seed 7 --until 4` plays the first four faults of seed 7 again. Judged by chaos_lab/judge.py: losses bit for bit those of an undisturbed
run, no healthy machine evicted, no action twice, no incident lost, at most one step lost a fault, no standing for longer than --stand.

A row for each round goes to `chaos.jsonl` at once, the table to `chaos.md`. A run that was stopped or killed goes on, in a new lab, with
the first fault that has no row; what is left of the old lab is removed, and the verdict is of all parts. `--shrink` looks for the shortest
schedule that fails like this one; `--schedule FILE` plays one that it wrote.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from chaos_lab.earlier import clear, earlier_parts
from chaos_lab.play import play
from chaos_lab.schedule import KINDS, Strike, cut, draw, read, shown
from chaos_lab.shrink import shrink
from chaos_lab.stage import Size
from chaos_lab.table import Rows

from minder.model.errors import MinderError


def main() -> int:
    options = parse()
    try:
        schedule = chosen(options)
    except (OSError, ValueError) as error:
        print(f"bench/chaos.py: {error}", file=sys.stderr)
        return 2
    rows = Rows(options.out)
    run = options.name or str(options.seed)
    try:
        if options.shrink:
            return shrunk(schedule, options, rows)
        right = part(run, schedule, options, rows)
    except MinderError as error:
        print(f"bench/chaos.py: {error}", file=sys.stderr)
        return 1
    return 0 if right else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=20.0, help="how many faults there are: one every so many seconds in this time")
    parser.add_argument("--every", default="60,120", help="seconds between two faults: from, to")
    parser.add_argument("--until", type=int, help="play up to this fault")
    parser.add_argument("--end-after", type=float, default=inf, help="minutes after which nothing strikes, and the job is ended")
    parser.add_argument("--kinds", default="", help="only these, comma separated")
    parser.add_argument("--schedule", type=Path, help="a file of strikes, instead of what the seed draws")
    parser.add_argument("--shrink", action="store_true", help="look for the shortest schedule that fails; the given one is played first")
    parser.add_argument("--machines", type=int, default=6)
    parser.add_argument("--standbys", type=int, default=3)
    parser.add_argument("--step-seconds", type=float, default=0.5)
    parser.add_argument("--telemetry", default="auto", choices=("auto", "scrape", "prometheus"))
    parser.add_argument("--ledger", default="", help="a database URL, instead of SQLite on a small disk")
    parser.add_argument(
        "--stand", type=float, default=240.0, help="seconds of the longest allowed recovery, where steps are of usual length"
    )
    parser.add_argument("--name", default="", help="of the run in the table [default: the seed]")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a run that was right")
    parser.add_argument("--out", type=Path, default=Path("bench-out/chaos"))
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[Strike]:
    """Raises ValueError for what makes no schedule."""
    if options.schedule is not None:
        return cut(read(options.schedule.read_text()), options.until)
    kinds = [kind for kind in options.kinds.split(",") if kind] or []
    if unknown := set(kinds) - set(KINDS):
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(KINDS)}")
    begin_s, _, end_s = options.every.partition(",")
    every_s = (float(begin_s), float(end_s or begin_s))
    count = max(1, round(60.0 * options.minutes / (sum(every_s) / 2)))
    return cut(draw(options.seed, count, every_s, kinds), options.until)


def size_of(options: argparse.Namespace) -> Size:
    lab = (options.machines, options.standbys, options.step_seconds, options.telemetry, options.ledger)
    return Size(*lab, for_s=60.0 * options.end_after, stand_s=options.stand)


def part(run: str, schedule: Sequence[Strike], options: argparse.Namespace, rows: Rows) -> bool:
    """Play what has no row yet. Whether all of the run was right, parts that were killed too."""
    if rows.is_over(run):
        print(f"run {run} has its rows in {rows.path}: give another --seed, --name or --out")
        return not rows.wrong(run)
    before = rows.of(run)
    earlier, wrong_before = earlier_parts(options.out, run, before), rows.wrong(run)
    clear(earlier)
    left = cut(schedule, after=rows.done(run))
    folder = options.out / f"run-{run}-{left[0].number if left else 'end'}-{int(time.time())}"

    def note(row: dict[str, Any]) -> None:
        rows.add({"run": run, **row})
        print(line(row), flush=True)

    folder.mkdir(parents=True)
    (folder / "schedule.jsonl").write_text(shown(left))
    end = play(left, size_of(options), folder, options.seed, note, earlier=earlier)
    end["wrong"] = [*wrong_before, *end["wrong"]]
    end["faults"] += sum(len(row.get("numbers", ())) for row in before)
    rows.add({"run": run, "folder": folder.name, **end})
    print(json.dumps({name: value for name, value in end.items() if name != "wounds"}), flush=True)
    if not end["wrong"] and not options.keep:
        for used in (*earlier, folder):
            shutil.rmtree(used, ignore_errors=True)
    return not end["wrong"]


def shrunk(schedule: Sequence[Strike], options: argparse.Namespace, rows: Rows) -> int:
    """The shortest schedule that fails as the given one: by a rule that it broke. Status 0 where one was found."""
    looked, tries = f"shrink-{options.seed}-{int(time.time())}", 0  # a job finds nothing of an earlier one in its folder

    def rules_of(candidate: Sequence[Strike]) -> set[str]:
        nonlocal tries
        tries += 1
        run = f"{looked}-{tries}"
        end = play(candidate, size_of(options), options.out / run, options.seed, lambda row: print(line(row), flush=True), whole=False)
        rows.add({"run": run, **end})
        if not end["wrong"] and not options.keep:
            shutil.rmtree(options.out / run, ignore_errors=True)
        print(f"try {tries}: {[strike.number for strike in candidate]} {end['end']} {end['wrong'] or 'right'}", flush=True)
        return set(end["broken"])

    wanted = rules_of(schedule)
    if not wanted:
        print("the schedule does not fail")
        return 1
    path = options.out / f"shortest-{options.seed}.jsonl"

    def fails(candidate: Sequence[Strike]) -> bool:
        if not rules_of(candidate) & wanted:
            return False
        path.write_text(shown(candidate))  # at once: tries take minutes, and one that is stopped goes on with what it found
        return True

    path.write_text(shown(schedule))
    shrink(schedule, fails)
    print(f"{path} after {tries} tries:\n{path.read_text()}", end="")
    return 0


def line(row: dict[str, Any]) -> str:
    """For the terminal."""
    found = ", ".join(f"{item['action']} {','.join(item['evicted'])}".strip() for item in row["recoveries"]) or "-"
    words = f"{'+'.join(map(str, row['numbers'])):>5s}  {' + '.join(row['kinds']):38s} {','.join(row['hit']) or '-':8s}"
    came = f"lost {row['steps_lost']}  stood {row['stood_s']} s  step {row['step']} of {row['step_s']} s  {found}"
    return f"{row['at_s']:>5d} s {words} {'right' if not row['wrong'] else 'WRONG'}  {came}  {'; '.join(row['wrong'])}"


if __name__ == "__main__":
    raise SystemExit(main())
