"""Prints one line for each pytest run, from its JUnit file, and a last line for all of them together.

Exit 1 where a run left no report, failed a test, or ran none at all.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

ORDER = ("failed", "errors", "passed", "skipped")


def count(path: Path) -> Counter[str]:
    """Tests of one report by outcome, with the run's seconds. Raises OSError or ParseError."""
    counts: Counter[str] = Counter()
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        number = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
        counts["failed"] += number["failures"]
        counts["errors"] += number["errors"]
        counts["skipped"] += number["skipped"]
        counts["passed"] += number["tests"] - number["failures"] - number["errors"] - number["skipped"]
        counts["milliseconds"] += round(1000 * float(suite.get("time", "0")))
    return counts


def line(counts: Counter[str]) -> str:
    """As pytest writes it: "3 failed, 120 passed, 2 skipped in 61.20s"."""
    parts = [f"{counts[name]} {name}" for name in ORDER if counts[name] or name == "passed"]
    return f"{', '.join(parts)} in {counts['milliseconds'] / 1000:.2f}s"


def main(paths: list[Path]) -> int:
    total: Counter[str] = Counter()
    for path in paths:
        try:
            counts = count(path)
        except (OSError, ElementTree.ParseError) as error:
            print(f"{path.stem}: no report: the run did not reach its end ({error})")
            total["errors"] += 1
            continue
        print(f"{path.stem}: {line(counts)}")
        total += counts
    print(line(total))
    return 1 if total["failed"] or total["errors"] or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
