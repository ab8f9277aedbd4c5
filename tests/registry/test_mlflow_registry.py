"""The registry with a real MLflow on sqlite: versions, the alias, and models that travel as parameters and arrays."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from minder.diagnose.load_detector import load_detector, open_model
from minder.model.errors import BadInputError
from minder.record.registry.folder import Model, read_model, write_model
from minder.record.registry.mlflow_registry import Log, Registry

pytestmark = pytest.mark.lab  # importing MLflow and migrating its database take seconds


@pytest.fixture(scope="module")
def registry(state_dir: Path) -> Registry:
    """With two versions, the second one the champion."""
    found = Registry()
    for number, patience_s in ((1, 44.0), (2, 55.0)):
        folder = state_dir / f"model-{number}"
        write_model(Model("default", {"patience_s": patience_s}, {"cpu_usage_ratio": (0.0, 0.9)}, card="# card\n"), folder)
        log = Log(
            {"seed": number}, {"heldout.f1": 0.5, "nothing": float("nan")}, {"loss": [(0, 1.0), (50, 0.5)]}, {"a/b.txt": b"x"}, {"k": "v"}
        )
        assert found.log_training("test", log, folder, ("cpu_usage_ratio",)).number == number
    assert found.champion() is None
    found.crown(2)
    return found


def test_runs_hold_what_was_measured(registry: Registry) -> None:
    import mlflow

    run = mlflow.MlflowClient().get_run(registry.version(1).run_id)
    assert run.data.params["seed"] == "1" and run.data.metrics["heldout.f1"] == 0.5 and run.data.tags["k"] == "v"
    assert "nothing" not in run.data.metrics
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(0, 1.0), (50, 0.5)]
    assert [item.path for item in mlflow.MlflowClient().list_artifacts(run.info.run_id)] == ["a"]


def test_a_training_leaves_no_experiment_behind_in_the_environment(registry: Registry) -> None:
    """Whatever this process starts later would log into it, or fail where the tracking server does not have it."""
    assert registry.champion() is not None
    assert "MLFLOW_EXPERIMENT_ID" not in os.environ


def test_all_of_it_lies_in_the_state_directory(registry: Registry, state_dir: Path) -> None:
    assert (state_dir / "mlflow.db").is_file()
    assert not (state_dir / "mlruns").exists()
    assert list((state_dir / "mlflow-artifacts").rglob("model.json"))
    assert not list(state_dir.rglob("*.pkl"))


def test_the_alias_names_one_version_and_moves(registry: Registry) -> None:
    champion = registry.champion()
    assert champion is not None and champion.number == 2 and champion.training["k"] == "v"


def test_the_online_pipeline_gets_the_champions_parameters(registry: Registry) -> None:
    assert open_model("models:/minder-detector@champion").ranges == {"cpu_usage_ratio": (0.0, 0.9)}
    detectors = [load_detector(f"models:/minder-detector{which}")({}) for which in ("@champion", "/1")]
    assert [detector.config.patience_s for detector in detectors] == [55.0, 44.0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("uri", ["models:/minder-detector/99", "models:/minder-detector@nobody", "models:/another/1"])
def test_what_is_not_registered_is_one_line(registry: Registry, uri: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="minder train") as caught:
        registry.fetch(uri, tmp_path)
    assert "\n" not in str(caught.value)
    with pytest.raises(BadInputError):
        registry.version(99)


def test_mlflow_itself_can_load_and_ask_the_model(registry: Registry) -> None:
    """Models from code: what `mlflow models serve` would do. A quiet minute of four machines has no verdict."""
    import mlflow
    import pandas as pd

    rows = [(pd.Timestamp("2026-03-02T06:00:00") + pd.Timedelta(seconds=s), f"m{m}", 0.4) for s in range(0, 60, 5) for m in range(4)]
    model = mlflow.pyfunc.load_model("models:/minder-detector/1")
    answer = model.predict(pd.DataFrame(rows, columns=["timestamp", "machine", "cpu_usage_ratio"]), params={"interval_s": 5.0})
    assert list(answer.columns) == ["time", "kind", "tier", "machines", "cause", "confidence"] and len(answer) == 0
    assert "minder-cluster" in Path(mlflow.pyfunc.get_model_dependencies("models:/minder-detector/1")).read_text()


def test_fetched_models_are_whole(registry: Registry, tmp_path: Path) -> None:
    assert read_model(registry.fetch("models:/minder-detector/2", tmp_path)).card == "# card\n"


def test_a_run_that_mlflow_began_is_the_one_that_is_filled(registry: Registry, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mlflow run` begins a run, logs the project's parameters to it, and tells us which it is."""
    import mlflow

    client = mlflow.MlflowClient()
    begun = client.create_run("0").info.run_id
    client.log_param(begun, "recipe", "default")
    monkeypatch.setenv("MLFLOW_RUN_ID", begun)
    log = Log({"recipe_name": "default"}, {"heldout.f1": 0.75})
    assert registry.log_training("test", log, state_dir / "model-1", ("cpu_usage_ratio",)).run_id == begun
    assert client.get_run(begun).data.metrics == {"heldout.f1": 0.75}
    monkeypatch.setenv("MLFLOW_RUN_ID", "gone")
    assert registry.log_training("test", log, state_dir / "model-1", ("cpu_usage_ratio",)).run_id not in ("gone", begun)


def test_the_listing_says_which_version_is_champion(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    """In this process here; the service asks in another one."""
    from minder.record.registry import listing

    assert listing.has_registry() and listing.main() == 0
    found = json.loads(capsys.readouterr().out)["versions"]
    champion = registry.champion()
    assert champion is not None and [item["version"] for item in found] == sorted((item["version"] for item in found), reverse=True)
    assert [item["version"] for item in found if item["champion"]] == [champion.number]
