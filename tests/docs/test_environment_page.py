"""docs/reference/environment.md names every variable of minder's that the code uses, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_IN_CODE = re.compile(r"""["'](MINDER_[A-Z_]+)(?:=[^"']*)?["']""")
_NAME = re.compile(r"\bMINDER_[A-Z_]+")


def _used() -> set[str]:
    files = [path for package in ("minder", "serve") for path in (ROOT / package).rglob("*.py")]
    return {name for path in files for name in _IN_CODE.findall(path.read_text(encoding="utf-8"))}


def _in_units() -> set[str]:
    return {
        name for path in (ROOT / "serve/deploy").rglob("*") if path.is_file() for name in _NAME.findall(path.read_text(errors="replace"))
    }


def test_every_variable_stands_on_the_page_and_no_other() -> None:
    page = set(_NAME.findall((ROOT / "docs/reference/environment.md").read_text(encoding="utf-8")))
    assert _used() - page == set(), "say in docs/reference/environment.md what it is for"
    assert page - _used() - _in_units() == set(), "no code reads or writes it: take it from the page"
    assert _in_units() - page == set()
