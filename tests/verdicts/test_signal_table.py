"""Every explicit signal has a row, and every row leads to its tier in the rules of a live job."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

import minder
from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.live import live_rules
from minder.edge.signals.kernel_patterns import PATTERNS
from minder.edge.signals.rules import SignalRow, load_signal_rules
from minder.edge.signals.xid import load_xid_rules
from minder.model.evidence import Signal, SignalKind, Suspect
from minder.model.observation import JobView, Observation, RuleResult

ROWS = load_signal_rules()
JOB = JobView("j", 1, "running", ("m1", "m2", "m3", "m4"), (), (), dict(enumerate(("m1", "m2", "m3", "m4"))), 0.0, 0.0)
# What makes several rows of one signal: a severity in its text, a judgement of its code, what was known of its moment.
SPLIT = {
    "xid": ("xid.evict", "xid.link", "xid.fatal", "xid.contained", "xid.none"),
    "sxid": ("sxid.fatal", "sxid.nonfatal"),
    "link": ("link.down", "link.up", "link.flap"),
    "oom": ("oom", "oom.program", "oom.neighbour"),
    "scrape": ("scrape.down", "scrape.series_lost", "scrape.slow"),
    "kernel": (),
}
_KNOWN = {"of_job": True, "tree_usual_bytes": 100 << 30, "others_grew_bytes": 50 << 30}
EXAMPLES: dict[str, list[Signal]] = {
    "xid.evict": [Signal(10.0, "xid", "m1", "gone", data={"code": 79})],
    "xid.link": [Signal(10.0, "xid", "m1", "149, NETIR_LINK_EVT Fatal XC0", data={"code": 149})],
    "xid.fatal": [Signal(10.0, "xid", "m1", "", data={"code": 109})],
    "xid.contained": [Signal(10.0, "xid", "m1", "", data={"code": 94})],
    "xid.none": [Signal(10.0, "xid", "m1", "145, RLW_RXPIPE Nonfatal XC0", data={"code": 145})],
    "sxid.fatal": [Signal(10.0, "kernel", "m1", data={"what": "sxid", "code": 20034, "fatal": True})],
    "sxid.nonfatal": [Signal(10.0, "kernel", "m1", data={"what": "sxid", "code": 22013, "fatal": False})],
    "link.down": [Signal(10.0, "link", "m1", device="p", data={"state": "down"})],
    "link.up": [Signal(10.0, "link", "m1", device="p", data={"state": "up"})],
    "link.flap": [
        Signal(at_s + dt_s, "link", "m1", device="p", data={"state": state})
        for at_s in (10.0, 60.0)
        for dt_s, state in ((0.0, "down"), (4.0, "up"))
    ],
    "oom.neighbour": [Signal(10.0, "kernel", "m1", data={"what": "oom", "tree_bytes": 100 << 30, **_KNOWN})],
    "oom.program": [Signal(10.0, "kernel", "m1", data={"what": "oom", "tree_bytes": 160 << 30, **_KNOWN})],
    "order": [Signal(10.0, "order", "m1", "ann: it smokes")],
}


def example(event: str) -> list[Signal]:
    if event in EXAMPLES:
        return EXAMPLES[event]
    if event in get_args(SignalKind) or event.partition(".")[0] in ("scrape", "exit"):
        kind, _, state = event.partition(".")
        return [Signal(10.0, kind, "m1", data={"state": state} if state else {})]  # type: ignore[arg-type]
    what, _, sign = event.partition(".")
    return [Signal(10.0, "kernel", "m1", "a line", data={"what": what, **({"sign": sign} if sign else {})})]


class Silent:
    name = "telemetry"

    def observe(self, observation: Observation) -> RuleResult:
        return RuleResult()


def run(signals: list[Signal], until_s: int = 130) -> list[Suspect]:
    """What the live rule for signals says at most."""
    tracker = JobTracker()
    rules = live_rules(tracker, Silent(), load_xid_rules(), 1.0)
    rule = next(item for item in rules if item.name == "signals")
    found: list[Suspect] = []
    for t in range(until_s):
        fresh = tuple(item for item in signals if t - 1 < item.time_s <= t)
        found += rule.observe(tracker.update(Observation(float(t), signals=fresh, job=JOB))).suspects
    return found


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.rule == "signals"], ids=lambda row: row.event)
def test_every_row_leads_to_its_tier(row: SignalRow) -> None:
    if row.event == "exit.first_deadly":
        return  # of recordings only: tests/evaluation/test_signal_cases.py
    found = run(example(row.event))
    assert {item.tier for item in found} == ({row.tier} if row.tier else set())
    assert {item.machines for item in found} <= {() if row.names == "job" else ("m1",)}


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.rule != "signals"], ids=lambda row: row.event)
def test_what_another_rule_judges_is_left_to_it(row: SignalRow) -> None:
    rules = live_rules(JobTracker(), Silent(), load_xid_rules(), 1.0)
    assert row.rule in {item.name for item in rules} | {"none", "progress", "start"}
    assert run(example(row.event)) == []


@pytest.mark.parametrize("row", [row for row in ROWS.values() if "stopped" in row.second], ids=lambda row: row.event)
def test_a_second_witness_raises_it(row: SignalRow) -> None:
    died = Signal(11.0, "exit", "m1", rank=0, generation=1, data={"code": None, "signal": 9})
    found = run([*example(row.event), died], 20)
    assert max((item.tier for item in found), key=("watch", "page", "evict").index) == row.seconded
    late = Signal(300.0, "exit", "m1", rank=0, generation=1, data={"code": None, "signal": 9})
    assert {item.tier for item in run([*example(row.event), late], 310)} == ({row.tier} if row.tier else set())


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.rule == "signals" and row.event != "order"], ids=lambda row: row.event)
def test_the_same_on_all_machines_names_none(row: SignalRow) -> None:
    everywhere = [
        Signal(item.time_s + number / 10, item.kind, name, item.message, device=item.device, data=item.data)
        for number, name in enumerate(JOB.machines)
        for item in example(row.event)
    ]
    found = [item for item in run(everywhere) if item.time_s > 10.5 and item.tier != "watch"]
    assert {item.machines for item in found} <= {()}
    assert all(item.tier == "page" for item in found)


def test_every_kernel_pattern_has_rows() -> None:
    events = {name for pattern in PATTERNS for name in SPLIT.get(pattern.event, (pattern.event,)) if name}
    assert events - set(ROWS) == set()


def test_every_kind_has_rows() -> None:
    kinds = {name for kind in get_args(SignalKind) for name in SPLIT.get(kind, (kind,))}
    assert kinds - set(ROWS) == set()


def test_every_signal_that_an_agent_raises_has_a_row() -> None:
    """Whatever `data={"what": ...}` stands in the agent's and the exporters' code, and every kind that they make."""
    root = Path(minder.__file__).parent
    whats, kinds = set(), set()
    for path in [*(root / "edge/agent").glob("*.py"), *(root / "edge/exporters").glob("*.py"), *(root / "ingest").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Signal"):
                continue
            made = {item.value for item in node.args[1:2] if isinstance(item, ast.Constant)}
            kinds |= made
            for keyword in node.keywords:
                if made == {"kernel"} and keyword.arg == "data" and isinstance(keyword.value, ast.Dict):
                    pairs = zip(keyword.value.keys, keyword.value.values, strict=True)
                    whats |= {v.value for k, v in pairs if getattr(k, "value", "") == "what" and isinstance(v, ast.Constant)}
    assert whats >= {"gpu_lost", "nvml_timeout"}
    assert whats - set(ROWS) == set()
    assert {name for kind in kinds for name in SPLIT.get(str(kind), (str(kind),))} - set(ROWS) == set()


def test_every_row_names_its_source() -> None:
    assert all(len(row.source) > 15 for row in ROWS.values())
