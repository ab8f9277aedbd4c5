from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.light_ledgers import lighten


@pytest.fixture(autouse=True)
def the_real_database(light_ledgers: pytest.MonkeyPatch) -> Iterator[None]:
    light_ledgers.undo()
    yield
    lighten(light_ledgers)
