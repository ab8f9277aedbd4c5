"""An alarm about the job's pace is told once, shown as long as it lasts, and leads to nothing by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minder.act.controller.reporting.gauges import Gauges
from minder.act.controller.reporting.status import read_status
from minder.app.build import build
from minder.config import JobConfig, MachineConfig
from minder.diagnose.verdicts.trigger import TriggerRule
from minder.record.incidents import Ledger, kinds

TEXT = "straggler alarm: half the traffic"


def gauge(world: Any, app: Any) -> float:
    families = {family.name: family for family in Gauges(world.sight(app)).collect()}
    return float(families["minder_controller_alarm"].samples[0].value)


def test_an_alarm_is_told_as_it_begins_and_shown_as_long_as_it_lasts(world: Any, begun: Any) -> None:
    assert gauge(world, begun) == 0.0
    begun.controller._stages.alarm = lambda: TEXT
    world.tick(begun, 3)
    told = [event.payload["text"] for event in begun.ledger.events(kinds=[kinds.NOTE])]
    assert told.count(TEXT) == 1 and gauge(world, begun) == 1.0
    assert not begun.ledger.events(kinds=[kinds.VERDICT, kinds.DECISION])
    begun.controller._stages.alarm = str
    world.tick(begun, 1)
    assert gauge(world, begun) == 0.0


def test_a_controller_that_is_built_asks_its_trigger(tmp_path: Path) -> None:
    config = JobConfig(name="x", machines=(MachineConfig(name="m0", agent="http://127.0.0.1:9"),), state_dir=str(tmp_path))
    app = build(config, ledger=Ledger(tmp_path / "ledger.db"))
    try:
        stages = app.controller._stages
        (rule,) = [item for item in stages.judge.rules if isinstance(item, TriggerRule)]  # type: ignore[attr-defined]
        observe = rule.observe

        def alarms(observation: Any) -> Any:
            result = observe(observation)
            rule.alarm = TEXT
            return result

        rule.observe = alarms  # type: ignore[method-assign]
        app.controller.step(app.clock.now_s())
        status = read_status(tmp_path / "watch" / "status.json")
        assert status is not None and status["alarm"] == TEXT
    finally:
        app.close()
