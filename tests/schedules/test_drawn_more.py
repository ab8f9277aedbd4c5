"""Drawn schedules 41 to 300, for the slow suite; still more of them: bench/schedules.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("first", range(41, 301, 10))
def test_the_invariants_hold(broken: Callable[[int], list[str]], first: int) -> None:
    for seed in range(first, first + 10):
        assert broken(seed) == []
