"""The [detector] table: which model reads the telemetry, and what looks on beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from minder.act.controller.reporting.shadow import ShadowRule
from minder.app.build import build
from minder.config import DetectorConfig, JobConfig, MachineConfig, load_config
from minder.model.errors import ConfigError
from minder.record.incidents import Ledger
from minder.record.registry.folder import Model, write_model

DEAD = "http://127.0.0.1:9"


def write_job(folder: Path, detector: str) -> Path:
    path = folder / "job.toml"
    path.write_text(f'name = "x"\n[[machines]]\nname = "m0"\nagent = "{DEAD}"\n[detector]\n{detector}\n')
    return path


def test_a_model_folder_is_found_beside_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_job(tmp_path, 'model = "./model"\nshadow = "models:/minder-detector/3"')
    monkeypatch.chdir("/")
    found = load_config(path).detector
    assert (Path(found.uri), found.shadow) == (tmp_path / "model", "models:/minder-detector/3")
    assert DetectorConfig().uri == "default"


def test_an_unknown_key_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="colour"):
        load_config(write_job(tmp_path, 'colour = "red"'))


def looks_on(config: JobConfig) -> set[str]:
    app = build(config, ledger=Ledger(Path(str(config.state_dir)) / "ledger.db"))
    try:
        rules = app.controller._stages.judge.rules  # type: ignore[attr-defined]
        return {rule.name for rule in rules if isinstance(rule, ShadowRule)}
    finally:
        app.close()


def test_a_shadow_and_drift_look_on_only_where_they_are_asked_for(tmp_path: Path) -> None:
    write_model(Model("default", {"patience_s": 60.0}, {"cpu_usage_ratio": (0.0, 0.5)}), tmp_path / "model")
    plain = JobConfig(name="x", machines=(MachineConfig(name="m0", agent=DEAD),), state_dir=str(tmp_path / "state"))
    model = str(tmp_path / "model")
    for detector, expected in (
        (DetectorConfig(), set()),
        (DetectorConfig(model=model), {"drift"}),
        (DetectorConfig(model=model, drift=False), set()),
        (DetectorConfig(shadow=model), {"shadow"}),
    ):
        assert looks_on(plain.model_copy(update={"detector": detector})) == expected


def test_a_model_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    plain = JobConfig(name="x", machines=(MachineConfig(name="m0", agent=DEAD),), state_dir=str(tmp_path / "state"))
    with pytest.raises(ConfigError, match="crystal"):
        build(plain.model_copy(update={"detector": DetectorConfig(name="crystal")}))
