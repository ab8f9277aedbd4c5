"""Drawn schedules 151 to 200: a quarter of those of the quick tests, in a file of its own, since a file is one worker's."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize("seed", range(151, 201))
def test_the_invariants_hold(broken: Callable[[int], list[str]], seed: int) -> None:
    assert broken(seed) == []
