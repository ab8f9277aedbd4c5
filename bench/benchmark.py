"""The public benchmark's entries and seeds (datasets/benchmark/RULES.md): python bench/benchmark.py run|table|commit|reveal

run [--entries NAME ...] [--parts PART ...] [--out benchmark-out] [--jobs 2]   each entry that is not measured yet, then the table
table [--out benchmark-out]             datasets/benchmark/RESULTS.md from what was measured
commit --secret FILE                    draw the seed of the judging part into FILE (0600, outside the repository), and print its line
reveal --secret FILE                    check it against its commitment, and put it into datasets/benchmark/revealed/
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from minder.model.errors import BadInputError
from minder.offline.benchmark.card import PARTS, TIMED, benchmark_folder, read_card
from minder.offline.benchmark.judging import Row
from minder.offline.benchmark.program import Program
from minder.offline.benchmark.run import OWN, read_result, run_benchmark
from minder.offline.benchmark.seeds import draw_secret, publish, read_secret, write_secret
from minder.offline.benchmark.table import HEAD, compare, figures, table

ROOT = Path(__file__).resolve().parents[1]
ENTRIES_AT = ROOT / "datasets/benchmark/entries"
RECORDINGS = tuple(TIMED)


def script(name: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, str(ENTRIES_AT / name), *words)


# Name: its command, and the parts that it answers.
ENTRIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "minder": (OWN.words, tuple(PARTS)),
    "first (docs/benchmark.md)": (script("first.py"), RECORDINGS),
    **{f"PyOD {name}": (script("pyod_detector.py", name), RECORDINGS) for name in ("ecod", "copod", "iforest", "knn", "hbos", "pca")},
    "Minder's reference": ((*OWN.words, "minder"), RECORDINGS),
    "NVIDIA's Flight Recorder analyser (NVRx)": (script("nvrx_attribution.py"), ("dumps",)),
    "PyTorch Flight Recorder analyser": (script("flight_recorder.py"), ("dumps",)),
    "Ray Train's rule for launch counts": (script("launch_counts.py"), ("dumps",)),
}


def run(given: argparse.Namespace) -> None:
    """Each entry and part by itself: what was measured once stays."""
    for name in given.entries or ENTRIES:
        words, parts = ENTRIES[name]
        for part in parts:
            file = result_file(given.out, name, part)
            if part not in (given.parts or parts) or file.exists():
                continue
            program = OWN if words == OWN.words else Program(words, name)
            result = run_benchmark(read_card(), program, [part], given.out, given.jobs)
            shutil.copyfile(result.file, file)
            print(f"{name}, {part}: {len(result.rows)} inputs; {'; '.join(result.problems)}", flush=True)
    write_table(given)


def result_file(out: Path, name: str, part: str) -> Path:
    return out / f"{part}, {name.replace('/', '-')}.json"


def write_table(given: argparse.Namespace) -> None:
    """RESULTS.md: a table for each part, and each entry compared with minder on the inputs of both."""
    card = read_card()
    lines = [f"# Results, version {card.version}, development part", "", *INTRODUCTION, ""]
    for part in PARTS:
        rows = {name: read_result(file, card.version) for name in ENTRIES if (file := result_file(given.out, name, part)).exists()}
        if not rows:
            continue
        lines += [f"## {part}", "", f"| entry | {' | '.join(HEAD[1:])} | F1 less minder's |", "|" + "---|" * (len(HEAD) + 1)]
        for name, found in rows.items():
            cells = table(figures(found))[1][1:]
            lines.append(f"| {name} | {' | '.join(cells)} | {_gain(rows, name)} |")
        lines += ["", *_absent(part, rows), ""]
    (ROOT / "datasets/benchmark/RESULTS.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


INTRODUCTION = (
    "`python bench/benchmark.py run`. Counts are found / wrong / missed / quiet; [RULES.md](RULES.md) says what each figure means.",
    "Brackets hold 95 % intervals, of the last column by a paired bootstrap. Fewer than 40 inputs a part separate good from bad, and not",
    "good from better. minder's rules for stacks, dumps and logs were made with the public cases at hand; no entry was tuned on the",
    "generated recordings. Minder's reference is the published detector in the default's place: minder's rules for signals, steps and",
    "stalls are the same, and decide most of logs and lab. 2026-11-27, two cores, load 10 to 50; NVRx at d8686d9, torch 2.13, PyOD 3.6.7.",
)


def _absent(part: str, rows: Mapping[str, object]) -> list[str]:
    """A line that names who has no row, and why: an entry that was not run is neither good nor bad."""
    left = {name: parts for name, (_, parts) in ENTRIES.items() if name not in rows}
    reasons = {
        "Not run on this part": [name for name, parts in left.items() if part in parts],
        "Not made for it": [name for name, parts in left.items() if part not in parts],
    }
    return [" ".join(f"{reason}: {', '.join(names)}." for reason, names in reasons.items() if names)]


def _gain(rows: dict[str, list[Row]], name: str) -> str:
    if name == "minder" or "minder" not in rows:
        return ""
    found = compare(rows["minder"], rows[name])
    if not found["inputs"]:
        return "-"
    gain = found["f1"]
    return f"{gain['value']:+.2f} ({gain['low']:+.2f} to {gain['high']:+.2f})"


def commit(given: argparse.Namespace) -> None:
    if given.secret.resolve().is_relative_to(ROOT):
        raise BadInputError(f"--secret {given.secret} lies in the repository: name a file outside of it")
    secret = draw_secret(read_card().version)
    write_secret(given.secret, secret)
    print(f'"{secret.version}" = "{secret.commitment}"')


def reveal(given: argparse.Namespace) -> None:
    card = read_card()
    secret = read_secret(given.secret, card.judging.get(card.version), card.version)
    file = benchmark_folder() / "revealed" / f"{secret.version}.json"
    if file.exists():
        raise BadInputError(f"{file} is there already: version {secret.version} has been revealed")
    publish(file, secret)
    print(f"revealed {secret.version}: draw the next one with `commit`")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="?", default="run", choices=("run", "table", "commit", "reveal"))
    parser.add_argument("--entries", nargs="*", choices=list(ENTRIES))
    parser.add_argument("--parts", nargs="*", choices=list(PARTS))
    parser.add_argument("--out", type=Path, default=Path("benchmark-out"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--secret", type=Path)
    given = parser.parse_args()
    if given.what in ("commit", "reveal") and given.secret is None:
        parser.error("--secret FILE is needed")
    try:
        {"run": run, "table": write_table, "commit": commit, "reveal": reveal}[given.what](given)
    except BadInputError as error:  # one line: the usage has nothing to do with it
        parser.exit(2, f"bench/benchmark.py: {error}\n")


if __name__ == "__main__":
    main()
