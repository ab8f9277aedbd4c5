"""The parts of the reference: what is claimed to be exact is compared with the plain way to work it out."""

from __future__ import annotations

import numpy as np
import pytest

from minder.diagnose.detectors.similarity.config import SimilarityConfig
from minder.diagnose.detectors.similarity.continuity import candidates
from minder.diagnose.detectors.similarity.detector import SimilarityDetector
from minder.diagnose.detectors.similarity.distances import normal_scores, summed_distances
from minder.diagnose.detectors.similarity.mahalanobis import MahalanobisScorer
from minder.diagnose.detectors.similarity.recent import RecentRows, Stretch
from minder.diagnose.detectors.similarity.vae_scorer import VaeScorer
from minder.diagnose.detectors.similarity.weights import Weights, shapes
from minder.model.errors import MinderError
from minder.model.telemetry import Window

LIMITS = {"a": (0.0, 10.0), "b": (0.0, 1.0), "c": (0.0, 1.0)}


def weights_of(metrics: tuple[str, ...]) -> Weights:
    rng = np.random.default_rng(3)
    arrays = {name: rng.uniform(-0.6, 0.6, shape).astype(np.float32) for name, shape in shapes(len(metrics), 1, 4, 8).items()}
    return Weights(tuple((name,) for name in metrics), metrics, LIMITS, arrays)


def window_of(values_TMK: np.ndarray, metrics: tuple[str, ...] = ("a", "b", "c"), start_s: float = 0.0) -> Window:
    rows, machines = values_TMK.shape[:2]
    names = tuple(f"m{m}" for m in range(machines))
    return Window(start_s + np.arange(rows, dtype=float), names, metrics, values_TMK, np.ones((rows, machines), dtype=bool))


def lively(rows: int, machines: int, seed: int = 0) -> np.ndarray:
    return np.array([5.0, 0.5, 0.5]) * (1 + 0.02 * np.random.default_rng(seed).standard_normal((rows, machines, 3)))


def plain_sums(vectors_MD: np.ndarray, distance: str) -> np.ndarray:
    apart_MMD = np.abs(vectors_MD[:, None] - vectors_MD[None]).astype(np.float64)
    if distance == "euclidean":
        return np.asarray(np.sqrt((apart_MMD**2).sum(axis=2)).sum(axis=1))
    return np.asarray((apart_MMD.sum(axis=2) if distance == "manhattan" else apart_MMD.max(axis=2)).sum(axis=1))


@pytest.mark.parametrize("distance", ["euclidean", "manhattan", "chebyshev"])
@pytest.mark.parametrize("machines", [1, 5, 256, 300])
def test_sums_of_distances_are_exact_in_blocks_and_at_once(distance: str, machines: int) -> None:
    vectors_TMD = np.random.default_rng(machines).normal(0.5, 0.01, (2, machines, 4)).astype(np.float32)
    vectors_TMD[0, 0] += 3.0
    known_TM = np.ones((2, machines), dtype=bool)
    found_TM = summed_distances(vectors_TMD, known_TM, distance)  # type: ignore[arg-type]
    for t in range(2):
        np.testing.assert_allclose(found_TM[t], plain_sums(vectors_TMD[t], distance), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("machines", [6, 300])
def test_a_machine_without_data_counts_for_nobody(machines: int) -> None:
    vectors_TMD = np.random.default_rng(0).normal(0, 1, (1, machines, 4))
    known_TM = np.ones((1, machines), dtype=bool)
    known_TM[0, 2] = False
    vectors_TMD[0, 2] = 1e6
    found_M = summed_distances(vectors_TMD, known_TM)[0]
    assert np.isnan(found_M[2])
    np.testing.assert_allclose(np.delete(found_M, 2), plain_sums(np.delete(vectors_TMD[0], 2, axis=0), "euclidean"), rtol=2e-4)


@pytest.mark.parametrize("machines", [4, 16, 64])
def test_one_outlier_has_the_largest_normal_score_that_there_is(machines: int) -> None:
    """The published score of a single outlier is capped at sqrt(N - 1): every threshold must lie below."""
    vectors_TMD = np.zeros((1, machines, 2))
    vectors_TMD[0, 1] = 5.0
    normal_M = normal_scores(summed_distances(vectors_TMD, np.ones((1, machines), dtype=bool)), 1e-4)[0]
    assert normal_M[1] == pytest.approx(np.sqrt(machines - 1), rel=1e-6)
    assert SimilarityConfig().needed(machines) < normal_M[1]


def test_two_equal_outliers_are_both_candidates_only_with_top_k() -> None:
    normal_TM = np.array([[3.0, 3.1, 0.0, 0.1, -0.1, 0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0]])
    known_TM = np.ones_like(normal_TM, dtype=bool)
    assert candidates(normal_TM, known_TM, SimilarityConfig())[0].nonzero()[0].tolist() == [1]
    assert candidates(normal_TM, known_TM, SimilarityConfig(top_k=2))[0].nonzero()[0].tolist() == [0, 1]


def test_all_windows_in_one_pass_are_what_torch_gives_one_by_one() -> None:
    torch = pytest.importorskip("torch")
    from minder.diagnose.detectors.similarity import network

    weights = weights_of(("a", "b", "c"))
    rows_LFSM = np.random.default_rng(0).random((3, 1, 15, 5), dtype=np.float32)
    latent_LTMZ = network.embed_latent(weights.arrays, rows_LFSM, 8)
    smooth_LTMW = network.reconstruct(weights.arrays, rows_LFSM, 8)
    assert latent_LTMZ.shape == (3, 8, 5, 8)
    for lane in range(3):
        part = {name: torch.from_numpy(array[lane]) for name, array in weights.arrays.items()}
        encoder, decoder = torch_lstm(torch, part, "encoder"), torch_lstm(torch, part, "decoder")
        for t in (0, 7):
            with torch.no_grad():
                hidden = encoder(torch.from_numpy(rows_LFSM[lane, 0, t : t + 8].T.copy())[:, :, None])[1][0][0]
                latent = hidden @ part["mean.weight"].T + part["mean.bias"]
                found = decoder(latent[:, None].expand(-1, 8, -1))[0] @ part["output.weight"].T + part["output.bias"]
            np.testing.assert_allclose(latent_LTMZ[lane, t], latent.numpy(), atol=2e-6)
            np.testing.assert_allclose(smooth_LTMW[lane, t], found[:, :, 0].numpy(), atol=2e-6)


def torch_lstm(torch: object, part: dict[str, object], name: str) -> object:
    lstm = torch.nn.LSTM(part[f"{name}.input"].shape[1], 4, batch_first=True)  # type: ignore[attr-defined]
    with torch.no_grad():  # type: ignore[attr-defined]
        lstm.weight_ih_l0.copy_(part[f"{name}.input"])
        lstm.weight_hh_l0.copy_(part[f"{name}.hidden"])
        lstm.bias_ih_l0.copy_(part[f"{name}.bias"])
        lstm.bias_hh_l0.zero_()
    return lstm


def test_four_coordinates_have_the_distances_of_the_eight_latent_values() -> None:
    pytest.importorskip("torch")
    from minder.diagnose.detectors.similarity import network

    arrays = weights_of(("a", "b", "c")).arrays
    rows_LFSM = np.random.default_rng(0).random((3, 1, 8, 9), dtype=np.float32)
    small, full = network.embed(arrays, rows_LFSM, 8), network.embed_latent(arrays, rows_LFSM, 8)
    assert small.shape[3] == 4
    for lane in range(3):
        np.testing.assert_allclose(plain_sums(small[lane, 0], "euclidean"), plain_sums(full[lane, 0], "euclidean"), rtol=1e-4)


def test_gaps_take_the_nearest_sample_and_a_machine_without_the_metric_is_unknown() -> None:
    values_TMK = np.array([[[1.0], [np.nan], [5.0]], [[np.nan], [np.nan], [np.inf]], [[3.0], [np.nan], [7.0]]])
    stretch = RecentRows(3, LIMITS).extend(window_of(values_TMK, ("a",)), ("a",))
    np.testing.assert_allclose(stretch.rows_KSM[0, :, 0], [0.1, 0.1, 0.1, 0.1, 0.3], rtol=1e-6)
    np.testing.assert_allclose(stretch.rows_KSM[0, 2:, 2], [0.5, 0.5, 0.7], rtol=1e-6)
    assert stretch.known_KTM[0].tolist() == [[True, False, True]] * 3
    assert stretch.fresh_KT[0].tolist() == [True, False, True]


def test_rows_in_one_window_score_as_rows_one_by_one() -> None:
    values_TMK = lively(40, 6)
    values_TMK[15:, 2] *= 1.4
    values_TMK[20:23, 4] = np.nan
    config = SimilarityConfig(continuity_s=10.0)
    scorer = MahalanobisScorer(LIMITS)
    together = SimilarityDetector(scorer, config).score(window_of(values_TMK))
    single, alone = SimilarityDetector(scorer, config), []
    for t in range(40):
        alone += single.score(window_of(values_TMK[t : t + 1], start_s=float(t)))
    np.testing.assert_array_equal([item.score_M for item in together], [item.score_M for item in alone])
    assert together[-1].score_M.argmax() == 2


def test_a_machine_without_a_sample_yet_stays_unknown_row_by_row() -> None:
    values_TMK = np.full((6, 3, 1), 5.0)
    values_TMK[:4, 2] = np.nan
    recent = RecentRows(3, LIMITS)
    stretches = [recent.extend(window_of(values_TMK[t : t + 1], ("a",), float(t)), ("a",)) for t in range(6)]
    assert [bool(item.known_KTM[0, 0, 2]) for item in stretches] == [False] * 4 + [True] * 2
    np.testing.assert_allclose(stretches[4].rows_KSM[0, :, 2], 0.5)  # its first sample fills the window, not the 0 of no sample


def test_only_a_machine_that_stays_the_candidate_is_accused() -> None:
    """A minute of oddness is a jitter; four minutes are a fault, told with metric, since when, observed and expected."""
    values_TMK = lively(700, 8)
    values_TMK[100:160, 3, 0] *= 2.0
    values_TMK[300:, 5, 0] *= 2.0
    found = SimilarityDetector(VaeScorer(weights_of(("a", "b", "c")), "raw")).score(window_of(values_TMK))
    accused = [(item.time_s, item.machines[m]) for item in found for m in np.flatnonzero(item.score_M >= item.threshold)]
    assert {name for _, name in accused} == {"m5"}
    assert 535.0 <= accused[0][0] <= 545.0
    evidence = found[-1].evidence["m5"][0]
    assert (evidence.metric, evidence.machine) == ("a", "m5")
    assert evidence.observed == pytest.approx(10.0, rel=0.1)
    assert evidence.expected == pytest.approx(5.0, rel=0.05)
    assert 299.0 <= found[-1].since_s["m5"] <= 305.0


def test_an_outage_of_the_monitoring_is_no_continuity() -> None:
    values_TMK = lively(500, 8)
    values_TMK[100:110, 3, 0] *= 2.0
    values_TMK[110:] = np.nan
    found = SimilarityDetector(VaeScorer(weights_of(("a", "b", "c")), "raw")).score(window_of(values_TMK))
    assert max(item.score_M.max() for item in found) < 30.0


def test_the_first_metric_in_order_that_accuses_decides() -> None:
    values_TMK = lively(400, 8)
    values_TMK[50:, 3, 2] *= 2.0
    values_TMK[60:, 5, 0] *= 2.0
    last = SimilarityDetector(VaeScorer(weights_of(("a", "b", "c")), "raw")).score(window_of(values_TMK))[-1]
    assert np.flatnonzero(last.score_M >= last.threshold).tolist() == [5]


def test_weights_of_another_shape_are_refused_in_one_line() -> None:
    arrays = dict(weights_of(("a",)).arrays)
    with pytest.raises(MinderError, match=r"encoder\.bias have shape"):
        Weights((("a",),), ("a",), LIMITS, {**arrays, "encoder.bias": np.zeros((1, 3))})
    with pytest.raises(MinderError, match="lack output"):
        Weights((("a",),), ("a",), LIMITS, {name: array for name, array in arrays.items() if "output" not in name})


def test_a_scorer_that_looks_every_half_minute_looks_at_the_same_times_however_rows_are_cut() -> None:
    times_T = np.arange(100.0, 200.0, 7.0)
    empty = np.zeros((0, len(times_T)))
    whole = Stretch((), empty, empty, empty, np.full(len(times_T), 7.0), times_T).due_T(30.0)
    parts = [Stretch((), empty, empty, empty, np.array([7.0]), times_T[t : t + 1]).due_T(30.0)[0] for t in range(len(times_T))]
    assert whole.tolist() == parts
    assert 3 <= whole.sum() <= 4
