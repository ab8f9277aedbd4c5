"""Records to JSON and back."""

from __future__ import annotations

import dataclasses
import inspect
import json
import types as python_types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minder.model import decision, evidence, history, observation, telemetry
from minder.model.decision import Decision
from minder.model.errors import WireError
from minder.model.evidence import Signal, Verdict
from minder.model.observation import JobView, MachineView
from minder.wire.codec import from_json, to_json

_ARRAYS = {"Window", "Scores"}  # never on the wire
RECORDS = [
    item
    for module in (decision, evidence, history, observation, telemetry)
    for name, item in inspect.getmembers(module, dataclasses.is_dataclass)
    if item.__module__ == module.__name__ and name not in (*_ARRAYS, "Observation")
]
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def strategy(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return built(typing.cast(type, hint))
    if origin in (typing.Union, python_types.UnionType):
        return st.one_of(*(st.none() if arg is type(None) else strategy(arg) for arg in args))
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin in (tuple, Sequence):
        return st.lists(strategy(args[0]), max_size=3).map(tuple)
    if origin is frozenset:
        return st.frozensets(strategy(args[0]), max_size=3)
    if origin is Mapping:
        return st.dictionaries(strategy(args[0]), st.just("x") if args[1] is Any else strategy(args[1]), max_size=3)
    return {float: FINITE, int: st.integers(-(2**53), 2**53), str: st.text(max_size=20), bool: st.booleans()}[hint]


def built(cls: type) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{field.name: strategy(hints[field.name]) for field in dataclasses.fields(cls)})


def test_the_records_are_those_of_the_protocol() -> None:
    assert {item.__name__ for item in RECORDS} >= {
        "Signal",
        "Flow",
        "WorkerView",
        "Verdict",
        "Decision",
        "ActionResult",
        "Evidence",
        "History",
    }


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__name__)
def test_every_record_comes_back_as_it_went(cls: type) -> None:
    @settings(max_examples=6, deadline=None)
    @given(built(cls))
    def there_and_back(record: Any) -> None:
        assert from_json(cls, json.loads(json.dumps(to_json(record)))) == record

    there_and_back()


@pytest.mark.parametrize(
    ("cls", "data", "field"),
    [
        (Signal, {"time_s": "now", "kind": "log"}, "Signal.time_s"),
        (Signal, {"time_s": 1.0, "kind": None}, "Signal.kind"),
        (Signal, {"time_s": 10**400, "kind": "log"}, "Signal.time_s"),
        (Signal, {"time_s": True, "kind": "log"}, "Signal.time_s"),
        (Signal, {"time_s": 1.0, "kind": "log", "rank": 1.5}, "Signal.rank"),
        (Signal, {"time_s": 1.0, "kind": "log", "rank": True}, "Signal.rank"),
        (Signal, {"time_s": 1.0, "kind": "log", "data": [1]}, "Signal.data"),
        (Signal, {"time_s": 1.0, "kind": ["log"]}, "Signal.kind"),
        (Signal, {"time_s": 1.0}, "kind"),
        (Signal, ["log"], "Signal"),
        (Verdict, {"time_s": 1, "kind": "machine", "tier": "evict", "machines": "m0"}, "Verdict.machines"),
        (MachineView, {"machine": "m0", "workers": [{"slot": "x"}]}, "MachineView.workers[0].slot"),
        (JobView, {"name": "j", "rank_machine": {"zero": "m0"}}, "JobView.rank_machine"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_a_wrong_type_is_one_line_that_names_the_field(cls: type, data: Any, field: str) -> None:
    with pytest.raises(WireError) as caught:
        from_json(cls, data)
    assert field in str(caught.value) and "\n" not in str(caught.value)


def test_a_newer_peers_extra_keys_are_ignored_and_missing_ones_take_their_default() -> None:
    signal = from_json(Signal, {"time_s": 1, "kind": "log", "mood": "good"})
    assert signal == Signal(1.0, "log")


@settings(max_examples=25, deadline=None)
@given(st.recursive(st.none() | st.booleans() | FINITE | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_no_json_at_all_raises_anything_but_a_wire_error(data: Any) -> None:
    for cls in (Signal, Decision, MachineView):
        try:
            from_json(cls, data)
        except WireError:
            pass
