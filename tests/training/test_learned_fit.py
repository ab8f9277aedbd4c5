"""Trees are fitted by scikit-learn and run in numpy: both must say the same."""

from __future__ import annotations

import numpy as np
import pytest

from minder.diagnose.detectors.learned.decide import Calibration
from minder.diagnose.detectors.learned.describe import FEATURES, KIND_FEATURES
from minder.diagnose.detectors.learned.model import LearnedModel
from minder.diagnose.detectors.learned.trees import CLIP
from minder.model.errors import ConfigError
from minder.offline.training.learned import fit as fitting
from minder.offline.training.learned.examples import Examples
from minder.offline.training.learned.fit import Fitted, fit

pytestmark = [pytest.mark.package("sklearn"), pytest.mark.lab]  # the import alone takes seconds
POWER = FEATURES.index("power_quick")


@pytest.fixture(scope="module")
def examples() -> Examples:
    """A machine is at fault where its power is far off, to either side; one kind is missing everywhere, others here and there."""
    rng = np.random.default_rng(5)
    features_NF = rng.normal(0, 1, (500, len(FEATURES))).astype(np.float32)
    features_NF[rng.random(features_NF.shape) < 0.1] = np.nan
    features_NF[:, KIND_FEATURES["throughput"]] = np.nan
    culprit_N = np.abs(np.nan_to_num(features_NF[:, POWER])) > 1.2
    return Examples(features_NF, culprit_N, np.ones(500))


@pytest.fixture(scope="module")
def fitted(examples: Examples) -> Fitted:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fitting.PARAMETERS, "max_iter", 6)
        patch.setitem(fitting.PARAMETERS, "min_samples_leaf", 10)
        return fit(examples)


def test_the_exported_trees_say_what_the_model_says(fitted: Fitted, examples: Examples) -> None:
    np.testing.assert_allclose(fitted.margin().of(examples.features_NF), fitted.of(examples.features_NF), atol=1e-5)


def test_margins_are_bounded_and_right(fitted: Fitted, examples: Examples) -> None:
    margin_N = fitted.margin().of(examples.features_NF)
    assert np.abs(margin_N).max() <= CLIP
    assert margin_N[examples.is_culprit_N].mean() > margin_N[~examples.is_culprit_N].mean() + 1.0


def test_more_deviation_never_speaks_against_a_fault_in_the_monotone_set(fitted: Fitted) -> None:
    rows_RF = np.zeros((30, len(FEATURES)), dtype=np.float32)
    rows_RF[:, POWER] = np.linspace(0.0, 10.0, 30)
    assert (np.diff(fitted.margin().monotone.log_odds(rows_RF)) >= -1e-9).all()


def test_what_speaks_for_a_machine_is_the_kind_that_it_cannot_do_without(fitted: Fitted) -> None:
    row_F = np.zeros(len(FEATURES), dtype=np.float32)
    row_F[POWER] = 3.0
    shares = fitted.margin().shares(row_F)
    assert next(iter(shares)) == "power" and shares["power"] > 0.5


def test_a_model_comes_back_from_its_arrays_and_one_of_another_version_does_not(fitted: Fitted, examples: Examples) -> None:
    model = LearnedModel(fitted.margin(), calibration=Calibration(-0.2, 0.8, prior=0.6))
    again = LearnedModel.of(model.arrays(), model.record())
    np.testing.assert_array_equal(again.margin.of(examples.features_NF), model.margin.of(examples.features_NF))
    assert again.calibration == model.calibration and again.decision == model.decision
    arrays = {name: array for name, array in model.arrays().items() if name != "signed.value_TN"}
    broken = {**model.arrays(), "signed.left_TN": np.zeros_like(model.arrays()["signed.left_TN"])}
    cut = {**model.arrays(), "monotone.feature_TN": np.array(3)}
    for data, record in (
        (arrays, model.record()),
        (cut, model.record()),
        (broken, model.record()),
        (model.arrays(), {**model.record(), "features": ["power"]}),
    ):
        with pytest.raises(ConfigError, match="train default"):
            LearnedModel.of(data, record)
    with pytest.raises(ConfigError, match="decision"):
        LearnedModel.of(model.arrays(), {**model.record(), "decision": {"speak_p": 0.9}})
