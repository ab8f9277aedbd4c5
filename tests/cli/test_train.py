"""`minder train` and `minder promote` as a user calls them, with a real MLflow on sqlite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from minder.cli import main
from minder.diagnose.load_detector import open_model
from minder.model.errors import BadInputError

pytestmark = pytest.mark.server  # four trainings and four comparisons: some forty seconds

BEGIN_S, ROWS, STEP_S, MACHINES, ONSET = 1_772_431_200, 60, 5, 8, 36
BUSY = {"gpu_power_draw_watts": 550.0, "gpu_duty_cycle_ratio": 0.95, "gpu_sm_activity_ratio": 0.7, "rdma_throughput_bytes_per_second": 1e11}
PEERS = {"gpu_power_draw_watts": 0.45, "gpu_duty_cycle_ratio": 1.03, "gpu_sm_activity_ratio": 0.3, "rdma_throughput_bytes_per_second": 0.05}
CULPRIT = {
    "gpu_power_draw_watts": 0.2,
    "gpu_duty_cycle_ratio": 0.05,
    "gpu_sm_activity_ratio": 0.03,
    "rdma_throughput_bytes_per_second": 0.0,
}


def write_hang(folder: Path, seed: int, culprit: int | None) -> None:
    """A job of eight machines that iterates; one falls silent, its peers wait for it."""
    folder.mkdir(parents=True)
    names = [f"m{index}" for index in range(MACHINES)]
    layout = f"gpus_per_machine = 1\nsample_interval_seconds = {STEP_S}\n[parallelism]\ntensor = 1\npipeline = 1\ndata = {MACHINES}\n"
    (folder / "job.toml").write_text(f'name = "{folder.name}"\nmachines = {json.dumps(names)}\n{layout}')
    rng = np.random.default_rng(seed)
    times = [datetime.fromtimestamp(BEGIN_S + STEP_S * row, tz=UTC) for row in range(ROWS)]
    columns: dict[str, object] = {"timestamp": [time for time in times for _ in names], "machine": names * ROWS}
    for metric, busy in BUSY.items():
        values_TM = busy * (1.0 + 0.01 * rng.standard_normal((ROWS, MACHINES)))
        if culprit is not None:
            values_TM[ONSET:] *= PEERS[metric]
            values_TM[ONSET:, culprit] *= CULPRIT[metric] / PEERS[metric]
        columns[metric] = np.clip(values_TM, 0.0, 1.0 if "ratio" in metric else np.inf).ravel()
    pl.DataFrame(columns).with_columns(pl.col("timestamp").dt.cast_time_unit("ms")).write_parquet(folder / "telemetry.parquet")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Twelve labelled recordings, two recipes, and a registry in which version 1 hardly speaks and is the champion; version 2 is not."""
    pytest.importorskip("mlflow")
    folder = tmp_path_factory.mktemp("site")
    truths = []
    onset = datetime.fromtimestamp(BEGIN_S + STEP_S * ONSET, tz=UTC).isoformat()
    for index in range(12):
        culprit = index % MACHINES if index < 10 else None
        write_hang(folder / "recordings" / f"r{index:02d}", index, culprit)
        fault = {} if culprit is None else {"fault": "hang", "machine": f"m{culprit}", "onset": onset}
        truths.append({"recording": f"r{index:02d}", "fault": None, **fault})
    (folder / "recordings" / "truth.json").write_text(json.dumps(truths))
    for name, values in (("deaf", "[1e6]"), ("good", "[90.0]")):
        data = '[data]\nrecordings = ["recordings"]\nheld_back = 0.4\n'
        (folder / f"{name}.toml").write_text(f'name = "{name}"\nseed = 11\n{data}[search]\nparameters = {{ patience_s = {values} }}\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINDER_STATE_DIR", str(folder / "state"))
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "MLFLOW_RUN_ID"):
            patch.delenv(name, raising=False)
        patch.chdir(folder)
        assert main(["train", "deaf.toml"]) == 0
        from minder.record.registry.mlflow_registry import Registry

        Registry().crown(1)
        yield folder


@pytest.fixture(scope="module")
def trained(site: Path) -> Path:
    """The second version, its folder written too."""
    assert main(["train", "good.toml", "--out", "model"]) == 0
    return site / "model"


def test_a_training_is_one_run_with_all_that_it_made(trained: Path) -> None:
    import mlflow

    from minder.record.registry.folder import read_model
    from minder.record.registry.mlflow_registry import Registry

    run = mlflow.MlflowClient().get_run(Registry().version(2).run_id)
    model = read_model(trained)
    assert run.data.params["data_sha256"] == model.training["data_sha256"] and len(model.training["data_sha256"]) == 64
    assert run.data.metrics["heldout.recall"] == 1.0 and run.data.metrics["heldout.precision"] == 1.0
    assert {item.path for item in mlflow.MlflowClient().list_artifacts(run.info.run_id)} >= {"card.md", "evaluation", "recipe.json"}
    low, high = model.ranges["gpu_power_draw_watts"]
    assert 450.0 < low < 550.0 < high < 650.0, "what came after the onsets is no range of usual values"
    assert "held-back recordings" in model.card and "gpu_power_draw_watts" in model.card


def test_only_a_better_version_becomes_the_champion(trained: Path, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from minder.record.registry.mlflow_registry import Registry

    assert main(["promote", "1", "--recordings", "recordings"]) == 2, "it is the champion already"
    capsys.readouterr()
    assert main(["promote", "2", "--recordings", "recordings", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["promoted"] is True and answer["challenger"]["recall"] == 1.0 and answer["champion"]["found"] == 0
    champion = Registry().champion()
    assert champion is not None and champion.number == 2
    assert main(["promote", "1", "--recordings", "recordings", "--registry", f"sqlite:///{site}/state/mlflow.db"]) == 1
    out = capsys.readouterr().out
    assert "stays a challenger" in out and "not surely better" in out
    kept = {item.number: item.judged for item in Registry().versions()}
    assert kept[2]["outcome"] == "promoted" and kept[2]["opponent"] == "models:/minder-detector/1" and "F1" in kept[2]["why"]
    assert kept[1]["outcome"] == "not promoted" and kept[1]["opponent"] == "models:/minder-detector/2" and "not surely" in kept[1]["why"]
    assert main(["promote", "1"]) == 1, "what was held back is too little to decide on"
    assert "at least 10" in capsys.readouterr().out


def test_evaluate_takes_a_model_from_the_registry(trained: Path, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for detector, found in (("models:/minder-detector/1", 0), ("models:/minder-detector/2", 1), (str(trained), 1)):
        assert main(["evaluate", "recordings/r03", "--detector", detector, "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["summary"]["found"] == found


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "gone.toml"],
        ["train", "crystal"],
        ["train", "good.toml", "--format", "xml"],
        ["promote", "99"],
        ["promote", "1", "--recordings", "gone"],
        ["promote", "0"],
        ["evaluate", "recordings/r03", "--detector", "models:/minder-detector/99"],
    ],
)
def test_bad_input_is_one_line_and_exit_2(site: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1


TINY = '[data]\nrecordings = ["recordings"]\nheld_back = 0.4\n[network]\nsteps = 12\nwindows = 64\n'


def test_a_trained_reference_brings_its_weights_order_loss_and_pictures(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import mlflow

    from minder.record.registry.mlflow_registry import Registry

    (site / "tiny.toml").write_text(f'name = "tiny"\ndetector = "minder"\nseed = 11\n{TINY}')
    assert main(["train", "tiny.toml", "--out", "tiny", "--format", "json"]) == 0
    uri = json.loads(capsys.readouterr().out)["model"]
    client, version = mlflow.MlflowClient(), Registry().version(int(uri.rpartition("/")[2]))
    run = client.get_run(version.run_id).data
    loss = [point.value for point in client.get_metric_history(version.run_id, "loss")]
    assert len(loss) > 1 and loss[-1] < loss[0]
    assert {f"reconstruction_error.{name}" for name in BUSY} <= set(run.metrics) and run.metrics["heldout.quiet"] == 1.0
    pages, figures = ({item.path for item in client.list_artifacts(version.run_id, name)} for name in ("evaluation", "evaluation/figures"))
    assert pages >= {"evaluation/report.html", "evaluation/report.json"} and "evaluation/figures/confusion-01.png" in figures
    model = mlflow.models.get_model_info(uri)
    assert model.signature is not None and {"timestamp", "machine", *BUSY} == set(model.signature.inputs.input_names())
    stored = {path.name for path in (site / "state" / "mlflow-artifacts").rglob("*") if path.is_file()}
    assert "weights.safetensors" in stored and not {name for name in stored if name.endswith((".pkl", ".pt", ".pth", ".joblib"))}
    found = open_model(uri)
    assert set(found.network["order"]) == set(BUSY) and {array.shape[0] for array in found.arrays.values()} == {len(BUSY)}
    assert main(["evaluate", "recordings/r10", "--detector", uri, "--format", "json"]) == 0, "a healthy one, through its own networks"
    assert json.loads(capsys.readouterr().out)["summary"]["quiet"] == 1


@pytest.mark.release
def test_mlflow_runs_the_project_in_this_environment(site: Path) -> None:
    """What docs/training.md shows: the run that `mlflow run` begins holds what `minder train` measured."""
    import mlflow

    database = f"sqlite:///{site}/project.db"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    environment |= {"MLFLOW_TRACKING_URI": database, "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}"}
    project = str(Path(__file__).parents[2] / "models")
    words = ["run", project, "--env-manager", "local", "-P", f"recipe={site / 'good.toml'}"]
    done = subprocess.run([sys.executable, "-m", "mlflow", *words], env=environment, cwd=site, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    client = mlflow.MlflowClient(database, database)
    (run,) = client.search_runs([item.experiment_id for item in client.search_experiments()])
    assert run.info.status == "FINISHED" and run.data.params["recipe_name"] == "good" and run.data.metrics["heldout.recall"] == 1.0
    (version,) = client.search_model_versions("name='minder-detector'")
    assert version.run_id == run.info.run_id


def test_a_model_that_is_a_pickle_is_refused_and_not_opened(site: Path) -> None:
    """MLflow's own way to store a Python model is a pickle, which runs whatever its author wrote when it is loaded."""
    import cloudpickle
    import mlflow

    from minder.record.registry.mlflow_registry import Registry

    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(site / "exploded"),)

    Registry()
    with mlflow.start_run():
        mlflow.pyfunc.log_model(name="theirs", python_model=mlflow.pyfunc.PythonModel(), registered_model_name="theirs")
    (pickled,) = site.rglob("python_model.pkl")
    pickled.write_bytes(cloudpickle.dumps(Bomb()))
    with pytest.raises(BadInputError, match="minder train"):
        open_model("models:/theirs/1")
    assert not (site / "exploded").exists()


def test_a_registry_that_does_not_answer_is_found_out_before_anything_is_fitted(site: Path) -> None:
    """In a process of its own: MLflow remembers addresses for all of one."""
    words = [sys.executable, "-m", "minder", "train", "good.toml", "--registry", "http://127.0.0.1:9", "--out", "never"]
    done = subprocess.run(
        words, cwd=site, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "the registry http://127.0.0.1:9 cannot be used" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr and not (site / "never").exists()
