"""SPAM's clipping, reset and warm-up on torch's own Adam, against numbers computed by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from minder.edge.worker import MomentReset
from minder.model.errors import BadInputError

torch = pytest.importorskip("torch")


def adam(start: float = 0.0, count: int = 1) -> tuple[Any, Any]:
    parameter = torch.nn.Parameter(torch.full((count,), start, dtype=torch.float64))
    return parameter, torch.optim.Adam([parameter], lr=0.1, betas=(0.9, 0.999), eps=1e-12)


def step(parameter: Any, optimizer: Any, *gradient: float) -> float:
    """The first element's update."""
    before = float(parameter[0])
    parameter.grad = torch.tensor(gradient, dtype=torch.float64)
    optimizer.step()
    return float(parameter[0]) - before


def test_a_spike_is_clipped_by_its_own_second_moment_and_its_sign_stays() -> None:
    """After 20 steps of 2, v corrected is 4: 5,000 times that is 20,000, and its root 141.42."""
    parameter, optimizer = adam()
    moments = MomentReset(optimizer)
    for _ in range(20):
        assert step(parameter, optimizer, 2.0) == pytest.approx(-0.1), "the mean over the root of the mean square is 1"
    step(parameter, optimizer, -1000.0)
    assert float(parameter.grad[0]) == pytest.approx(-math.sqrt(20_000.0)) and moments.clipped == 1
    step(parameter, optimizer, 100.0)
    assert float(parameter.grad[0]) == 100.0, "below the bound nothing is touched"


def test_without_it_a_spike_stays_in_the_moments() -> None:
    """The update right after the spike, by hand. m = 2 (0.9 + ...) is 2(1 - 0.9^20), then 0.9 m + 0.1 g, then 0.9 m + 0.1 2."""
    found = {}
    for clips in (False, True):
        parameter, optimizer = adam()
        if clips:
            MomentReset(optimizer)
        for _ in range(20):
            step(parameter, optimizer, 2.0)
        step(parameter, optimizer, -1000.0)
        found[clips] = step(parameter, optimizer, 2.0)
        spike = -math.sqrt(20_000.0) if clips else -1000.0
        first, second = 2 * (1 - 0.9**20), 4 * (1 - 0.999**20)
        first, second = 0.9 * (0.9 * first + 0.1 * spike) + 0.2, 0.999 * (0.999 * second + 0.001 * spike**2) + 0.004
        expected = -0.1 * (first / (1 - 0.9**22)) / math.sqrt(second / (1 - 0.999**22))
        assert found[clips] == pytest.approx(expected, rel=1e-6)
    assert found[True] != pytest.approx(found[False])


def test_nothing_is_clipped_before_the_moments_mean_something_nor_where_there_are_none() -> None:
    """The second element gets its first gradient at step 30: its second moment is zero, and it moves all the same."""
    parameter, optimizer = adam(count=2)
    moments = MomentReset(optimizer)
    for number in range(30):
        step(parameter, optimizer, 1000.0 if number == 5 else 1.0, 0.0)
    assert moments.clipped == 0
    step(parameter, optimizer, 1.0, 3.0)
    assert float(parameter[1]) < 0.0 and moments.clipped == 0


def test_a_reset_sets_moments_and_steps_to_zero_and_warms_up() -> None:
    """With a constant gradient Adam's update is the learning rate at every step; after a reset the scale of it, never more."""
    parameter, optimizer = adam()
    MomentReset(optimizer, every=25, warm_up=4)
    updates = [step(parameter, optimizer, 3.0) / -0.1 for _ in range(31)]
    wanted = [1 - 0.99 * 0.5 * (1 + math.cos(math.pi * place / 4)) for place in range(4)]
    assert wanted[0] == pytest.approx(0.01) and wanted[2] == pytest.approx(0.505)
    assert updates == pytest.approx([1.0] * 25 + wanted + [1.0] * 2)
    assert optimizer.param_groups[0]["lr"] == 0.1, "the learning rate is the scheduler's"
    assert float(optimizer.state[parameter]["step"]) == 6.0


def test_a_checkpoint_goes_on_in_the_middle_of_a_warm_up() -> None:
    whole, parts = adam(), adam()
    one, other = MomentReset(whole[1], every=5, warm_up=4), MomentReset(parts[1], every=5, warm_up=4)
    for _ in range(7):
        step(*whole, 1.0)
        step(*parts, 1.0)
    parameter, optimizer = adam(float(parts[0][0]))
    resumed = MomentReset(optimizer, every=5, warm_up=4)
    optimizer.load_state_dict(parts[1].state_dict())
    resumed.load_state_dict(other.state_dict())
    assert [step(*whole, 1.0) for _ in range(4)] == pytest.approx([step(parameter, optimizer, 1.0) for _ in range(4)])
    assert resumed.state_dict() == one.state_dict()


def test_closed_the_optimizer_is_as_it_was_and_by_hand_it_resets_at_once() -> None:
    parameter, optimizer = adam()
    moments = MomentReset(optimizer, every=0, warm_up=10)
    for _ in range(3):
        step(parameter, optimizer, 1.0)
    moments.reset()
    assert step(parameter, optimizer, 1.0) == pytest.approx(-0.001)
    moments.close()
    assert step(parameter, optimizer, 1.0) == pytest.approx(-0.1)


def test_what_has_no_moments_is_refused() -> None:
    parameter, optimizer = adam()
    with pytest.raises(BadInputError, match="not SGD"):
        MomentReset(torch.optim.SGD([parameter], lr=0.1))
    with pytest.raises(BadInputError, match="theta above 1"):
        MomentReset(optimizer, theta=0.5)
