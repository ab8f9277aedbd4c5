"""Recordings on disk: the same bytes from the same seed, readable by the product, with the truth beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from minder.ingest.sources.events import read_events, read_truths
from minder.ingest.sources.recording import read_recording
from minder.model.errors import BadInputError
from minder.simulate.cluster.recipe import NuisanceRules, Recipe, load_recipe, recipe_names
from minder.simulate.cluster.simulate import make, simulate

SMALL = {"duration_s": (240.0, 240.0), "faults": {"healthy_share": 0.3, "onset_s": (100.0, 110.0)}}


def digest(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_same_seed_gives_the_same_bytes(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    kinds = ("wander", "drift", "evaluation", "outage", "stuck_sensor")
    changes = {"nuisances": {"kinds": kinds, "count": (5, 5)}, "monitoring": {"events_share": 1.0, "signals_share": 1.0}}
    rules = recipe(**SMALL, **changes)
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        list(simulate(rules, tmp_path / name, seed, 2))
    assert digest(tmp_path / "one") == digest(tmp_path / "again")
    one, other = digest(tmp_path / "one"), digest(tmp_path / "other")
    assert all(one[name] != other[name] for name in one if name.endswith("telemetry.parquet"))


def test_a_recording_does_not_depend_on_how_many_are_made(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    rules = recipe(**SMALL)
    list(simulate(rules, tmp_path / "three", 1, 3))
    alone = make(rules, 1, 3)
    written = pl.read_parquet(tmp_path / "three" / "r0003" / "telemetry.parquet")
    assert written["gpu_power_draw_watts"].to_numpy() == pytest.approx(
        alone.rows.values_RK[:, [model.name for model in alone.site.models].index("gpu_power_draw_watts")], rel=1e-6
    )


def test_a_nuisance_more_moves_no_other_draw(recipe: Callable[..., Recipe]) -> None:
    """Recordings stay comparable when a concept is added: only what it touches changes."""
    plain = make(recipe(), 1, 1)
    warm = make(recipe(nuisances={"kinds": ("warm_slot",), "count": (1, 1)}), 1, 1)
    names = [model.name for model in plain.site.models]
    different = {name for k, name in enumerate(names) if not np.array_equal(plain.rows.values_RK[:, k], warm.rows.values_RK[:, k])}
    assert different == {"gpu_temperature_celsius"}


def test_the_product_reads_what_was_written(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    rules = recipe(**SMALL, monitoring={"extra_metrics": True, "events_share": 1.0, "metrics": (23, 23)})
    out = tmp_path / "out"
    made = list(simulate(rules, out, 1, 2))
    truths = read_truths(out / "truth.json")
    assert [truth.recording for truth in truths] == ["r0001", "r0002"]
    for item, truth in zip(made, truths, strict=True):
        recording = read_recording(out / item.name)
        assert recording.job.machines == item.scene.shape.machines
        assert recording.job.topology().parallelism.pipeline == 2
        assert truth.machine is None or truth.machine in recording.job.machines
        assert (truth.machine is None) == (truth.fault is None) == (truth.onset_s is None)
        assert {"step"} <= {signal.kind for signal in read_events(out / item.name / "events.jsonl")}


def test_the_onset_is_inside_the_recording(recipe: Callable[..., Recipe]) -> None:
    rules = recipe(duration_s=(300.0, 300.0), faults={"healthy_share": 0.0, "onset_s": (100.0, 290.0)})
    for index in range(1, 6):
        made = make(rules, 1, index)
        assert made.truth.onset_s is not None
        onset_ms = 1000.0 * made.truth.onset_s - made.begin_ms
        assert made.rows.time_R.min() + 60_000 < onset_ms < made.rows.time_R.max() - 60_000


def test_a_folder_with_something_in_it_is_left_alone(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(BadInputError, match="not empty"):
        list(simulate(recipe(), tmp_path, 1, 1))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("name", [name for name in recipe_names() if name not in ("healthy-fleet", "large")])
def test_every_shipped_recipe_makes_plausible_recordings(name: str) -> None:
    rules = load_recipe(name)
    rules = rules.model_copy(update={"job": rules.job.model_copy(update={"machines": (4, min(16, rules.job.machines[1]))})})
    made = make(rules, rules.seed, 1)
    values_RK, machines = made.rows.values_RK, made.scene.machines
    high_K = np.array([model.high for model in made.site.models])
    assert np.nanmin(values_RK) >= 0.0 and np.all(np.nanmax(values_RK, axis=0) <= high_K * 1.0001)
    assert len(values_RK) > 0.5 * machines * made.scene.duration_s / made.site.interval_s * (0.3 if "outage" in made.scene.nuisances else 1)
    assert made.rows.time_R.min() > -20_000 and len(set(made.rows.machine_R.tolist())) >= machines - 1


def test_levels_of_a_recipe_are_what_its_machines_read(recipe: Callable[..., Recipe]) -> None:
    levels = {"memory_usage_ratio": (0.04, 0.06), "gpu_power_draw_watts": (100.0, 110.0)}
    job = {"machines": (8, 8), "pipeline": (1,), "levels": levels}
    made = make(recipe(job=job), 1, 1)
    usual = make(recipe(job={**job, "levels": {}}), 1, 1)
    middle = dict(zip((model.name for model in made.site.models), np.nanmedian(made.rows.values_RK, axis=0).tolist(), strict=True))
    assert 0.035 < middle["memory_usage_ratio"] < 0.07 and 85.0 < middle["gpu_power_draw_watts"] < 130.0
    others = [k for k, model in enumerate(made.site.models) if model.name not in (*levels, "gpu_temperature_celsius")]
    assert np.array_equal(made.rows.values_RK[:, others], usual.rows.values_RK[:, others], equal_nan=True)


def test_the_recipe_of_the_real_clusters_reads_what_they_read() -> None:
    """Medians of AcmeTrace's curves (busy GPUs; all hosts), Seren's and Kalos's, and a tenth around them."""
    rules = load_recipe("a100")
    rules = rules.model_copy(update={"faults": rules.faults.model_copy(update={"healthy_share": 1.0}), "duration_s": (200.0, 200.0)})
    monitoring = rules.monitoring.model_copy(update={"metrics": (19, 19), "few_share": 0.0})
    rules = rules.model_copy(update={"monitoring": monitoring, "nuisances": NuisanceRules()})
    middles: dict[str, list[float]] = {}
    for index in range(1, 41):
        made = make(rules, rules.seed, index)
        for model, value in zip(made.site.models, np.nanmedian(made.rows.values_RK, axis=0).tolist(), strict=True):
            middles.setdefault(model.name, []).append(value)
    real = {
        "gpu_duty_cycle_ratio": (0.99, 0.99), "gpu_temperature_celsius": (48.0, 48.0), "gpu_memory_used_ratio": (0.50, 0.77),
        "gpu_sm_activity_ratio": (0.67, 0.71), "cpu_usage_ratio": (0.08, 0.20), "memory_usage_ratio": (0.07, 0.15),
    }  # fmt: skip
    for name, (low, high) in real.items():
        assert 0.9 * low <= np.median(middles[name]) <= 1.1 * high, name
