"""The learned detector and the pool, with two hand-made trees: what they say, of whom, and of what they say nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from learned_stumps import stumps

from minder.diagnose.detectors.choose import choose_learned
from minder.diagnose.detectors.learned.describe import CANDIDATES, FEATURES
from minder.diagnose.detectors.learned.detector import LearnedDetector, PoolDetector
from minder.diagnose.detectors.learned.features import FeatureStream
from minder.diagnose.load_detector import detector_maker, open_model
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.ingest.windows import rows_of
from minder.model.errors import ConfigError, MinderError
from minder.model.evidence import Scores, Verdict
from minder.model.observation import Observation
from minder.model.telemetry import Window
from minder.record.registry.folder import Model, read_model, write_model

METRICS = ("gpu_power_draw_watts", "gpu_sm_activity_ratio", "rdma_throughput_bytes_per_second")


def job(factor: float = 0.4, machines: int = 8, rows: int = 120) -> Window:
    """Machine m1 works at `factor` from the middle on."""
    rng = np.random.default_rng(2)
    values_TMK = np.array([500.0, 0.6, 1e11]) * np.exp(rng.normal(0, 0.02, (rows, machines, 3)))
    values_TMK[rows // 2 :, 1] *= factor
    names = tuple(f"m{m}" for m in range(machines))
    return Window(1.7e9 + 5.0 * np.arange(rows), names, METRICS, values_TMK, np.ones((rows, machines), dtype=bool))


def verdicts(detector: LearnedDetector | PoolDetector, window: Window) -> list[Verdict]:
    judge = Judge([TelemetryRule(detector)])
    return [item for row in rows_of(window) for item in judge.judge(Observation(float(row.times_T[0]), row))[0]]


def test_a_machine_that_falls_behind_its_peers_is_named_with_what_shows_it() -> None:
    window = job()
    found = verdicts(LearnedDetector(stumps()), window)
    assert [item.machines for item in found] == [("m1",)]
    assert 10.0 < found[0].time_s - window.times_T[60] < 200.0
    shown = {item.metric: item for item in found[0].evidence}
    assert "posterior" in found[0].evidence[-1].message and "prior: one fault of the job in 2 h" in found[0].evidence[-1].message
    assert all(item.observed < item.expected for name, item in shown.items() if name in METRICS and item.observed is not None)


def test_a_healthy_job_names_no_machine() -> None:
    assert verdicts(LearnedDetector(stumps()), job(1.0)) == []


def only(window: Window, machines: int) -> Window:
    """The first so many machines, none even where there were some."""
    return replace(
        window, machines=window.machines[:machines], values_TMK=window.values_TMK[:, :machines], present_TM=window.present_TM[:, :machines]
    )


BAD: dict[str, tuple[Window, str]] = {
    "no rows": (replace(job(), times_T=np.zeros(0), values_TMK=np.zeros((0, 8, 3)), present_TM=np.zeros((0, 8), dtype=bool)), ""),
    "no machine": (only(job(), 0), "0 machines have no peers"),
    "one machine": (only(job(), 1), "1 machines have no peers"),
    "two machines": (only(job(), 2), "2 machines have no peers"),
    "no metric": (replace(job(), metrics=(), values_TMK=np.zeros((120, 8, 0))), "none of the 0 metrics"),
    "metrics that the model never saw": (replace(job(), metrics=("of_tomorrow", "job_threads", "steps_total")), "none of the 3 metrics"),
    "no value": (replace(job(), values_TMK=np.full((120, 8, 3), np.nan)), "no machine has a value"),
    "infinite values": (replace(job(), values_TMK=np.full((120, 8, 3), np.inf)), ""),
    "no machine heard": (replace(job(), values_TMK=np.full((120, 8, 3), np.nan), present_TM=np.zeros((120, 8), dtype=bool)), "no machine"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_judged_accuses_no_machine_and_says_why(case: str) -> None:
    window, why = BAD[case]
    detector = LearnedDetector(stumps())
    assert verdicts(detector, window) == []
    assert why in detector.not_judged and detector.not_judged.startswith("not judged: ") == bool(why)


def test_one_metric_of_one_kind_is_enough_and_a_judged_row_gives_no_reason() -> None:
    window = replace(job(0.2), metrics=("gpu_sm_activity_ratio",), values_TMK=job(0.2).values_TMK[:, :, 1:2])
    detector = LearnedDetector(stumps())
    assert [item.machines for item in verdicts(detector, window)] == [("m1",)]
    assert detector.not_judged == ""


class Says:
    """A default detector that accuses one machine in every row."""

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.also: dict[str, object] = {}

    def score(self, window: Window) -> list[Scores]:
        score_M = np.array([100.0 * (name == self.machine) for name in window.machines])
        return [Scores(float(time_s), window.machines, score_M, 90.0, **self.also) for time_s in window.times_T]

    def learn(self, window: Window, anomalous: frozenset[str]) -> None: ...

    def state(self) -> dict[str, object]:
        return {}

    def load(self, state: object) -> None: ...


def test_the_pool_drops_what_the_posterior_contradicts_and_keeps_what_it_does_not() -> None:
    window = job()
    late = replace(window, times_T=window.times_T[70:], values_TMK=window.values_TMK[70:], present_TM=window.present_TM[70:])
    early = replace(window, times_T=window.times_T[:70], values_TMK=window.values_TMK[:70], present_TM=window.present_TM[:70])
    for machine, named in (("m1", [("m1",)]), ("m5", [])):
        says = Says("none yet")
        pool = PoolDetector(says, LearnedDetector(stumps()))  # type: ignore[arg-type]
        rule = TelemetryRule(pool)
        for row in rows_of(early):
            rule.observe(Observation(float(row.times_T[0]), row))
        says.machine = machine
        first = next(iter(rows_of(late)))
        assert [item.machines for item in rule.observe(Observation(float(first.times_T[0]), first)).suspects] == named


@pytest.mark.parametrize("doubt", [lambda machine: {"not_judged": {machine: "broken"}}, lambda machine: {"clocks_off": (machine,)}])
def test_the_pool_hears_no_learned_accusation_of_a_machine_whose_telemetry_is_not_believed(
    doubt: Callable[[str], dict[str, object]],
) -> None:
    """The learned part reads what is exported as it stands."""
    for machine, named in (("m1", []), ("m2", [("m1",)])):
        says = Says("none")
        says.also = doubt(machine)
        assert [item.machines for item in verdicts(PoolDetector(says, LearnedDetector(stumps())), job())] == named  # type: ignore[arg-type]


def test_features_have_a_name_each_and_only_the_loudest_machines_are_described() -> None:
    window, stream = job(machines=60, rows=80), FeatureStream()
    assert len(set(FEATURES)) == len(FEATURES)
    bins = [
        stream.add(float(time_s), window.machines, window.metrics, window.values_TMK[t].T, window.present_TM[t])
        for t, time_s in enumerate(window.times_T)
    ]
    newest = bins[-1]
    assert newest is not None and newest.features_CF.shape == (CANDIDATES, len(FEATURES))
    assert newest.candidates_C[0] == 1 and newest.features_CF[0, FEATURES.index("power_quick")] < -5.0
    assert np.isnan(newest.features_CF[0, FEATURES.index("clock_quick")]), "what a site does not export is no data, not calm"


def test_a_model_goes_through_its_folder_and_a_broken_one_is_refused(tmp_path: object) -> None:
    model = stumps()
    folder = tmp_path / "model"  # type: ignore[operator]
    write_model(Model("learned", network=model.record(), arrays=model.arrays()), folder)
    assert verdicts(detector_maker(read_model(folder))({}), job()) != []  # type: ignore[arg-type]
    assert isinstance(detector_maker(Model("pool", network=model.record(), arrays=model.arrays()))({}), PoolDetector)
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(MinderError, match="copy the folder again"):
        open_model(str(folder))
    with pytest.raises(ConfigError, match="no trees"):
        detector_maker(Model("learned"))
    assert isinstance(choose_learned("learned", model), LearnedDetector)
