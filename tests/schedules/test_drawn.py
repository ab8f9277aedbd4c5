"""Drawn schedules 1 to 40, for the quick tests; 260 more: test_drawn_more.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize("seed", range(1, 41))
def test_the_invariants_hold(broken: Callable[[int], list[str]], seed: int) -> None:
    assert broken(seed) == []
