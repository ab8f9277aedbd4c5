from __future__ import annotations

import numpy as np
import pytest

from minder.model.errors import MinderError
from minder.offline.training.fit_order import fit_order, largest_z


def test_the_largest_z_is_the_farthest_machine_s_and_gaps_are_gaps() -> None:
    values_TMK = np.zeros((2, 5, 2))
    values_TMK[0, 3, 0] = 9.0
    values_TMK[1, :3, 1] = np.nan
    found_TK = largest_z(values_TMK)
    assert found_TK[0, 0] == pytest.approx(2.0)  # sqrt(5 - 1)
    assert np.isnan(found_TK[0, 1])  # all equal
    assert np.isnan(found_TK[1, 1])  # two machines tell nothing


def test_what_tells_faults_apart_comes_first() -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    abnormal_W = rng.random(2000) < 0.3
    noise, hint, sign = rng.random((3, 2000))
    largest_WK = np.stack([noise, hint + 0.5 * abnormal_W, sign + 2.0 * abnormal_W], axis=1)
    largest_WK[::50, 1] = np.nan
    assert fit_order(largest_WK, abnormal_W, ("noise", "hint", "sign"))[0] == "sign"


def test_normal_windows_alone_give_no_order() -> None:
    pytest.importorskip("sklearn")
    with pytest.raises(MinderError, match="normal and abnormal"):
        fit_order(np.zeros((10, 1)), np.zeros(10, dtype=bool), ("a",))
