"""A controller whose telemetry is not scored says so everywhere, and goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minder.act.controller.reporting.gauges import Gauges
from minder.app.build import build
from minder.config import JobConfig, MachineConfig, load_config
from minder.diagnose.scoring import ray_scoring
from minder.diagnose.scoring.config import ScoringConfig
from minder.model.errors import ConfigError, MissingExtraError
from minder.model.evidence import Scores
from minder.record.incidents import Ledger, kinds

DEAD = "http://127.0.0.1:9"


def is_degraded(world: Any, app: Any) -> bool:
    families = {family.name: family for family in Gauges(world.sight(app)).collect()}
    return {sample.labels["what"]: sample.value for sample in families["minder_controller_degraded"].samples}["scoring"] == 1.0


def test_what_is_not_scored_is_told_once_and_shown_as_long_as_it_lasts(world: Any, begun: Any) -> None:
    assert not is_degraded(world, begun)
    begun.controller._stages.unscored = lambda: "no Ray at 10.0.0.7:6379"
    world.tick(begun, 3)
    assert is_degraded(world, begun)
    told = [event.payload for event in begun.ledger.events(kinds=[kinds.DEGRADED]) if event.payload["what"] == "scoring"]
    assert told == [{"what": "scoring", "detail": "no Ray at 10.0.0.7:6379"}]
    assert begun.state.phase == "running"
    begun.controller._stages.unscored = str
    world.tick(begun, 1)
    assert not is_degraded(world, begun)


def test_telemetry_that_is_not_believed_is_reported_once_and_shown_as_long_as_it_lasts(world: Any, begun: Any) -> None:
    why = "gpu_sm_activity_ratio fell alone while all else that it does goes on: look at its exporter, or its unit"
    scores = Scores(0.0, ("m0", "m1"), np.zeros(2), 90.0, not_judged={"m1": why})
    shown: list[str] = []
    begun.controller._sight.on_say = shown.append
    begun.controller._stages.scores = lambda: scores
    world.tick(begun, 3)
    told = [event.payload for event in begun.ledger.events(kinds=[kinds.DEGRADED]) if event.payload["what"] == "telemetry"]
    assert told == [{"what": "telemetry", "detail": f"m1: {why}"}]
    assert shown == [f"telemetry of m1 is not believed: {why}"]
    assert begun.controller._sight.unjudged() == {"m1": why}


def test_an_alarm_that_comes_again_is_noted_each_time_and_shown_once_in_ten_minutes(
    world: Any, begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(begun.controller._sight, "on_say", shown.append)

    def alarm(text: str) -> None:
        begun.controller._stages.alarm = lambda: text
        world.tick(begun, 1)
        begun.controller._stages.alarm = str
        world.tick(begun, 1)

    for _ in range(3):
        alarm("straggler alarm: steps twice as far apart")
    alarm("failure alarm: no step completed")
    assert [line.partition(":")[0] for line in shown] == ["straggler alarm", "failure alarm"]
    assert all(line.endswith("no machine is named by this") for line in shown)
    texts = [event.payload.get("text", "") for event in begun.ledger.events(kinds=[kinds.NOTE])]
    assert sum("alarm" in text for text in texts) == 4
    world.clock.sleep(600.0)
    alarm("straggler alarm: steps twice as far apart")
    assert len(shown) == 3


def test_a_cluster_that_is_not_there_does_not_stop_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_scoring.importlib.util, "find_spec", lambda name: object())
    config = JobConfig(
        name="x", machines=(MachineConfig(name="m0", agent=DEAD),), state_dir=str(tmp_path),
        scoring=ScoringConfig(engine="ray", ray_address="127.0.0.1:9"),
    )  # fmt: skip
    app = build(config, ledger=Ledger(tmp_path / "ledger.db"))
    try:
        app.controller.step(app.clock.now_s())
        assert json.loads((tmp_path / "watch" / "status.json").read_text())["unscored"] == ""
    finally:
        app.close()


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_scoring.importlib.util, "find_spec", lambda name: None)
    config = JobConfig(name="x", machines=(MachineConfig(name="m0", agent=DEAD),), state_dir=str(tmp_path))
    with pytest.raises(MissingExtraError, match=r"ray is not installed: run `pip install 'minder-cluster\[ray\]'`"):
        build(config.scored_by("ray", "10.0.0.7:6379"))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('engine = "ray"', "ray_address is missing"),
        ('engine = "ray"\nray_address = "ray://h:10001"', "no address of a Ray head"),
        ('engine = "dask"', "'process' or 'ray'"),
    ],
)
def test_a_wrong_table_is_told_in_one_line(table: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(f'name = "x"\n[[machines]]\nname = "m0"\nagent = "{DEAD}"\n[scoring]\n{table}\n')
    with pytest.raises(ConfigError, match="scoring") as caught:
        load_config(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
