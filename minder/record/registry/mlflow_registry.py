"""MLflow, and nothing of it anywhere else: runs with what was measured, models with their versions and the alias `champion`.

By default a sqlite file and a folder in minder's state directory; $MLFLOW_TRACKING_URI names another place. MLflow's own usage reports are
switched off before it is imported. It takes seconds to import: a command that needs no registry never loads it.
"""

from __future__ import annotations

import io
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from minder.model.errors import BadInputError, MinderError
from minder.model.resources import default_state_dir, find_resource

__all__ = ["CHAMPION", "MODEL_NAME", "Log", "Registry", "Version"]

MODEL_NAME = "minder-detector"
CHAMPION = "champion"
_EXPERIMENT = "minder"
_JUDGED, _LONGEST_TAG = "minder.judged.", 1000


@dataclass(frozen=True, slots=True)
class Version:
    """One registered model version. training: tags of the run that made it; judged: what its last comparison came to (`judge`)."""

    number: int
    run_id: str
    training: Mapping[str, str]
    judged: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Log:
    """What one training reports. curves: name to (step, value) pairs; files: path inside the run to its bytes."""

    parameters: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


class Registry:
    """One tracking server or file. Raises MinderError where it cannot be used."""

    def __init__(self, uri: str | None = None) -> None:
        self._mlflow = _import_mlflow()
        self.uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or _default_uri()
        self._mlflow.set_tracking_uri(self.uri)
        self._mlflow.set_registry_uri(os.environ.get("MLFLOW_REGISTRY_URI") or self.uri)
        self._client = self._mlflow.MlflowClient()

    def check(self) -> None:
        """Raises MinderError unless it answers now: what is registered at the end of a training may have taken hours."""
        from mlflow.exceptions import MlflowException

        try:
            with _asked_once():
                self._client.search_experiments(max_results=1)  # runs and models may be kept by two servers
                self._client.search_registered_models(max_results=1)
        except MlflowException as error:
            why = _first_line(error).partition("(Caused by")[0].partition(": Max retries")[0]
            raise MinderError(f"the registry {self.uri} cannot be used ({why}): start it, or name another one with --registry") from error

    def log_training(self, name: str, log: Log, model_folder: Path, inputs: tuple[str, ...]) -> Version:
        """One run with all that was measured and the model, registered as the next version. inputs: metrics that it read.

        model_folder: as minder.record.registry.folder writes it; it becomes the model's only artifact.
        """
        with self._failures("train"), self._run(name) as run_id:
            self._log(run_id, log)
            return Version(self._log_model(model_folder, inputs), run_id, dict(log.tags))

    def log_run(self, name: str, log: Log) -> str:
        """One run that makes no model, such as a validation. Returns its id."""
        with self._failures(name), self._run(name) as run_id:
            self._log(run_id, log)
            return run_id

    def fetch(self, uri: str, folder: Path) -> Path:
        """The model folder behind "models:/NAME@ALIAS" or "models:/NAME/VERSION", copied into `folder`. No code of it is run."""
        with self._failures(uri):
            found = Path(self._mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(folder)))
        inner = sorted(found.glob("artifacts/*/model.json"))
        if not inner:
            raise BadInputError(f"{uri} holds no detector: name a model that `minder train` registered")
        return inner[0].parent

    def read_file(self, version: Version, name: str) -> bytes | None:
        """One file of the run that made a version, None where it logged none."""
        with self._failures(f"models:/{MODEL_NAME}/{version.number}"), tempfile.TemporaryDirectory() as scratch:
            if name not in {item.path for item in self._client.list_artifacts(version.run_id)}:
                return None
            return Path(self._client.download_artifacts(version.run_id, name, scratch)).read_bytes()

    def version(self, number: int) -> Version:
        with self._failures(f"models:/{MODEL_NAME}/{number}"):
            found = self._client.get_model_version(MODEL_NAME, str(number))
        return self._version(found)

    def champion(self) -> Version | None:
        """The version that the alias names, None while there is none."""
        from mlflow.exceptions import MlflowException

        try:
            return self._version(self._client.get_model_version_by_alias(MODEL_NAME, CHAMPION))
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                return None
            raise MinderError(f"{self.uri}: {_first_line(error)}") from error

    def versions(self) -> list[Version]:
        """Every version, newest first."""
        with self._failures(MODEL_NAME):
            found = self._client.search_model_versions(f"name='{MODEL_NAME}'")
        return sorted((self._version(item) for item in found), key=lambda item: -item.number)

    def crown(self, number: int) -> None:
        """Move the alias."""
        with self._failures(f"models:/{MODEL_NAME}/{number}"):
            self._client.set_registered_model_alias(MODEL_NAME, CHAMPION, str(number))

    def judge(self, number: int, promoted: bool, opponent: str, why: Sequence[str], time_s: float) -> None:
        """Keep with the version what a comparison said of it: outcome, opponent, why (one line), time (ISO 8601, UTC)."""
        at = datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        tags = {"outcome": "promoted" if promoted else "not promoted", "opponent": opponent, "why": "; ".join(why), "time": at}
        with self._failures(f"models:/{MODEL_NAME}/{number}"):
            for name, value in tags.items():
                self._client.set_model_version_tag(MODEL_NAME, str(number), _JUDGED + name, value[:_LONGEST_TAG])

    def _version(self, found: Any) -> Version:
        with self._failures(f"models:/{MODEL_NAME}/{found.version}"):
            tags = self._client.get_run(found.run_id).data.tags if found.run_id else {}
        judged = {name.removeprefix(_JUDGED): str(value) for name, value in dict(found.tags).items() if name.startswith(_JUDGED)}
        return Version(int(found.version), str(found.run_id), dict(tags), judged)

    @contextmanager
    def _run(self, name: str) -> Iterator[str]:
        """The run that `mlflow run` began, if it began it here; else a new one in our experiment."""
        begun = os.environ.pop("MLFLOW_RUN_ID", None)
        if begun is not None and not self._has_run(begun):
            begun = None
        # By number, not with set_experiment(): that would stay in this process's environment, and mislead what it starts later.
        experiment = self._experiment() if begun is None else None
        with self._mlflow.start_run(run_id=begun, experiment_id=experiment, run_name=name) as run:
            yield run.info.run_id

    def _has_run(self, run_id: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            self._client.get_run(run_id)
        except MlflowException:
            return False
        return True

    def _experiment(self) -> str:
        """The number of our experiment, made where there is none."""
        found = self._client.get_experiment_by_name(_EXPERIMENT)
        if found is not None:
            return str(found.experiment_id)
        return str(self._client.create_experiment(_EXPERIMENT, artifact_location=_artifacts_beside(self.uri)))

    def _log(self, run_id: str, log: Log) -> None:
        client = self._client
        for key, value in log.parameters.items():
            client.log_param(run_id, key, value)
        for key, metric in log.metrics.items():
            if metric == metric:  # NaN: nothing was there to measure
                client.log_metric(run_id, key, metric)
        for key, points in log.curves.items():
            for step, point in points:
                client.log_metric(run_id, key, point, step=step)
        for key, text in log.tags.items():
            client.set_tag(run_id, key, text)
        self._log_files(run_id, log.files)

    def _log_files(self, run_id: str, files: Mapping[str, bytes]) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            for name, data in files.items():
                path = Path(scratch) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            self._client.log_artifacts(run_id, scratch)

    def _log_model(self, folder: Path, inputs: tuple[str, ...]) -> int:
        from importlib.metadata import version

        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):  # it chats; what goes wrong is raised
            warnings.simplefilter("ignore")
            info = self._mlflow.pyfunc.log_model(
                name="detector",
                python_model=str(find_resource("models/scorer.py")),
                artifacts={"detector": str(folder)},
                signature=_signature(inputs),
                pip_requirements=[f"minder-cluster[models]=={version('minder-cluster')}"],
                registered_model_name=MODEL_NAME,
            )
        return int(info.registered_model_version)

    @contextmanager
    def _failures(self, what: str) -> Iterator[None]:
        """What MLflow raises, as one line."""
        from mlflow.exceptions import MlflowException

        try:
            yield
        except MlflowException as error:
            missing = error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
            if missing and what.startswith("models:/"):
                raise BadInputError(
                    f"{what} is not in the registry {self.uri} ({_first_line(error)}): `minder train` registers one"
                ) from error
            raise MinderError(f"the registry {self.uri} failed at {what}: {_first_line(error)}") from error


@contextmanager
def _asked_once() -> Iterator[None]:
    """MLflow asks a server that does not answer for minutes; not here."""
    names = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
    before = {name: os.environ.get(name) for name in names}
    os.environ |= {name: text for name, text in names.items() if before[name] is None}
    try:
        yield
    finally:
        for name in names:
            if before[name] is None:
                os.environ.pop(name, None)


def _import_mlflow() -> Any:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # a command says what it does by itself
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")  # tqdm in a notebook without ipywidgets; the bars are off anyway
        import mlflow
        import mlflow.pyfunc

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return mlflow


def _default_uri() -> str:
    folder = default_state_dir()
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{(folder / 'mlflow.db').absolute()}"


def _artifacts_beside(uri: str) -> str | None:
    """A sqlite file's artifacts lie beside it, not in whatever folder a command is typed; a server has a place of its own."""
    prefix = "sqlite:///"
    return (Path(uri.removeprefix(prefix)).absolute().parent / "mlflow-artifacts").as_uri() if uri.startswith(prefix) else None


def _signature(metrics: tuple[str, ...]) -> Any:
    """Rows of telemetry in, verdict lines out. A site may lack any of the metrics."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    given = [ColSpec(DataType.datetime, "timestamp"), ColSpec(DataType.string, "machine")]
    given += [ColSpec(DataType.double, name, required=False) for name in metrics]
    columns = [ColSpec(DataType.string, name) for name in ("time", "kind", "tier", "machines", "cause")]
    return ModelSignature(
        inputs=Schema(given),
        outputs=Schema([*columns, ColSpec(DataType.double, "confidence")]),
        params=ParamSchema([ParamSpec("interval_s", DataType.double, 0.0)]),
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
