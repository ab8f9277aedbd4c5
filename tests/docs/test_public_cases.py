"""The table of public cases: every thread that a test is made of stands in it, and as many cases as there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "public-cases.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")][1:]
EXCEPTIONS = ROOT / "tests" / "signals" / "data" / "exceptions" / "public.jsonl"
PLACES = ROOT / "tests" / "stacks" / "test_public_places.py"


def test_every_thread_and_every_case_stands_in_the_table() -> None:
    texts = [json.loads(line) for line in EXCEPTIONS.read_text(encoding="utf-8").splitlines()]
    places = re.findall(r'^    "([^"]+)": \($', PLACES.read_text(encoding="utf-8"), re.MULTILINE)
    threads = {item for item in [*(text["source"] for text in texts), *places] if "#" in item}
    assert threads == set(re.findall(r"[\w.-]+/[\w.-]+#\d+", PAGE))
    counts = [int(cell[1]) for cell in ROWS]
    assert [len(texts), len(places)] == [sum(counts[-5:-1]), counts[-1]]
    assert all(int(right) == int(cases) and (wrong, silent) == ("0", "0") for _, cases, right, wrong, silent, *_ in ROWS)
