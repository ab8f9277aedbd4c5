"""The matrix: five trainers that know nothing of minder, and whatever happens to them; what minder does about it.

    python bench/matrix.py [--cells ddp:sigstop,hf:xid] [--trainers ddp,hf] [--faults sigstop,xid] [--seed 0] [--out bench-out/matrix]

Each cell is a job of four machines and two standbys under `minder run --act` with launchers and agents, one after the other, as the lab
has them. No healthy machine may be evicted, a bad one must be gone by its third failure, no job may be left standing, and the ladder must
have been climbed as matrix_lab/rungs.py says. A line per cell goes to `matrix.jsonl`, the table of all lines to `matrix.md`. A bench that
was stopped goes on: cells that have a line are left out, unless `--again` is given. `--ci` takes the ten cells of
tests/scenarios/test_matrix.py.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from matrix_lab.cells import CI_CELLS, FAULTS, TRAINERS, Cell, every_cell
from matrix_lab.play import play_cell
from matrix_lab.rungs import rung_rows

from minder.model.errors import LabError
from minder.simulate.lab.clean import clean_labs


def main() -> int:
    arguments = parse()
    try:
        cells = chosen(arguments)
    except ValueError as error:
        print(f"bench/matrix.py: {error}", file=sys.stderr)
        return 2
    arguments.out.mkdir(parents=True, exist_ok=True)
    clean_labs()
    done = set() if arguments.again else {row["cell"] for row in read(arguments.out) if row["seed"] == arguments.seed}
    rows = []
    for cell in cells:
        if str(cell) in done:
            continue
        rows.append(play(cell, arguments))
        with (arguments.out / "matrix.jsonl").open("a") as log:
            log.write(json.dumps(rows[-1]) + "\n")
        (arguments.out / "matrix.md").write_text(table(read(arguments.out)))
        print(line(rows[-1]), flush=True)
    return 0 if all(row["right"] for row in rows) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", default="", help="TRAINER:FAULT, comma separated; instead of --trainers and --faults")
    parser.add_argument("--trainers", default=",".join(TRAINERS))
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--ci", action="store_true", help="the ten cells of the test")
    parser.add_argument("--seed", type=int, default=0, help="which machines are hit")
    parser.add_argument("--stand", type=float, default=100.0, help="seconds without a step or a generation after which a job stands")
    parser.add_argument("--limit", type=float, default=420.0, help="seconds for a cell; one that moves then is not done")
    parser.add_argument("--again", action="store_true", help="play cells anew that have a line already")
    parser.add_argument("--keep", action="store_true", help="keep each run's folder, also where it was right")
    parser.add_argument("--out", type=Path, default=Path("bench-out/matrix"))
    return parser.parse_args()


def chosen(arguments: argparse.Namespace) -> Sequence[Cell]:
    """Raises ValueError for a cell that there is not."""
    if arguments.ci:
        return CI_CELLS
    if not arguments.cells:
        for given, known in ((arguments.trainers, TRAINERS), (arguments.faults, FAULTS)):
            if unknown := set(given.split(",")) - set(known):
                raise ValueError(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
        trainers, faults = arguments.trainers.split(","), arguments.faults.split(",")
        return [cell for cell in every_cell() if cell.trainer in trainers and cell.fault in faults]
    cells = [Cell(*text.partition(":")[::2]) for text in arguments.cells.split(",")]
    if unknown := [str(cell) for cell in cells if cell.trainer not in TRAINERS or cell.fault not in FAULTS]:
        raise ValueError(f"unknown: {', '.join(unknown)}; write TRAINER:FAULT out of {', '.join(TRAINERS)} and {', '.join(FAULTS)}")
    return cells


def play(cell: Cell, arguments: argparse.Namespace) -> dict[str, Any]:
    """A lab that cannot be had is a row as well, and not a right one. The folder of a run that was not right is kept."""
    folder = arguments.out / f"{cell.trainer}-{cell.fault}-{arguments.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        row = play_cell(cell, folder, arguments.seed, arguments.stand, arguments.limit)
    except LabError as error:
        row = {"cell": str(cell), "seed": arguments.seed, "right": False, "wrong": [str(error)], "end": "not played"}
    if row["right"] and not arguments.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return row


def read(out: Path) -> list[dict[str, Any]]:
    """The newest line of each cell and seed."""
    path = out / "matrix.jsonl"
    rows = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []
    return list({(row["cell"], row["seed"]): row for row in rows}.values())


def line(row: dict[str, Any]) -> str:
    """For the terminal.

    >>> line({"cell": "ddp:sigkill", "right": False, "wrong": ["standing instead of finished"], "end": "standing", "seconds": 130})
    'ddp:sigkill                  WRONG standing  evicted -  restarts -  standbys -  130 s  (standing instead of finished)'
    """
    why = f"  ({'; '.join(row['wrong'])})" if row["wrong"] else ""
    evicted = ", ".join(row.get("evicted", ())) or "-"
    counts = f"restarts {row.get('restarts', '-')}  standbys {row.get('standbys', '-')}  {row.get('seconds', '-')} s"
    return f"{row['cell']:28s} {'right' if row['right'] else 'WRONG'} {row['end']:9s} evicted {evicted}  {counts}{why}"


def table(rows: Sequence[dict[str, Any]]) -> str:
    """First the matrix, then the rungs by fault, then the numbers of each cell."""
    found = {row["cell"]: row for row in rows}
    lines = [f"| what happens | {' | '.join(TRAINERS)} |", "|---" * (len(TRAINERS) + 1) + "|"]
    for fault in FAULTS.values():
        if any(f"{trainer}:{fault.name}" in found for trainer in TRAINERS):
            words = (_word(found.get(f"{trainer}:{fault.name}")) for trainer in TRAINERS)
            lines.append(f"| {fault.name}: {fault.what} | {' | '.join(words)} |")
    lines += ["", f"{sum(row['right'] for row in rows)} of {len(rows)} right.", ""]
    lines += ["| what happens | cells | climbed | seconds to the next first step: median (worst) |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rung_rows(rows)] + [""]
    lines += ["| cell | seed | right | end | evicted | accused | failures | restarts | standbys | seconds | rungs, s | wrong |"]
    lines += ["|---" * 12 + "|"]
    for row in rows:
        cells = (row["cell"], row["seed"], "yes" if row["right"] else "no", row["end"], ", ".join(row.get("evicted", ())) or "-")
        more = (", ".join(row.get("accused", ())) or "-", *(row.get(name, "-") for name in ("failures", "restarts", "standbys", "seconds")))
        rungs = ", ".join(f"{rung} {'-' if seconds is None else seconds}" for rung, seconds in row.get("rungs", ())) or "-"
        lines.append(f"| {' | '.join(map(str, (*cells, *more, rungs, '; '.join(row['wrong']) or '-')))} |")
    return "\n".join(lines) + "\n"


def _word(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    return "right" if row["right"] else "standing" if row["end"] == "standing" else "wrong"


if __name__ == "__main__":
    raise SystemExit(main())
