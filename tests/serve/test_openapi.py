"""The contract for programs that are generated from it: whole, described, and true of every operation that is called by its own example."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from minder.model.clock import FakeClock
from minder.record.incidents import Ledger, kinds
from serve.app import build_app
from serve.settings import Settings
from serve.settings_file import ServiceFile
from serve.state import Service, open_service
from serve.watching import watchers
from serve.watching.settings import JobsSettings
from tests.serve.conftest import NOW_S, write_past
from tests.serve.test_decisions import ask

As = Callable[..., dict[str, str]]
Operation = tuple[str, str, dict[str, Any]]  # method, path, the document's part
JOB = "llm-70b"

# Generated clients call these names: one that changes breaks its callers' programs.
OPERATIONS = [
    "get_caller", "get_health", "get_metrics", "get_readiness",
    "list_incidents", "show_incident", "list_captures", "get_bundle", "add_note",
    "list_events", "stream_events",
    "list_machines", "show_machine", "show_telemetry", "record_outcome", "return_machine", "evict_machine", "retest_machine",
    "list_decisions", "show_decision", "approve_decision", "reject_decision",
    "list_pauses", "start_pause", "end_pause", "list_maintenance", "add_maintenance", "end_maintenance",
    "list_jobs", "show_job", "register_job", "end_job", "restart_job", "add_standby", "list_standbys", "list_models",
    "show_policy", "try_settings", "show_track_record",
    "update_job", "roll_back_job", "offer_code", "send_code_piece", "skip_batches",
    "score_upload", "begin_session", "list_sessions", "show_session", "append_rows", "score_session", "end_session",
    "analyse_stacks", "analyse_collectives",
    "report_signals", "report_alerts", "report_health_events", "report_gpud",
]  # fmt: skip
# In this order, since one makes what the next one ends; the others may come in any.
IN_ORDER = [
    "start_pause", "end_pause", "add_maintenance", "end_maintenance", "return_machine", "evict_machine", "restart_job", "update_job",
    "roll_back_job", "skip_batches", "register_job",
    "end_job", "retest_machine",
    "begin_session", "list_sessions", "show_session", "append_rows", "score_session", "end_session",
]  # fmt: skip
ENDLESS, FILES = {"stream_events"}, {"analyse_stacks", "analyse_collectives"}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    service = open_service(Settings(str(tmp_path_factory.mktemp("contract") / "ledger.db")))
    yield build_app(service).openapi()
    service.close()


def operations(document: dict[str, Any]) -> dict[str, Operation]:
    return {part["operationId"]: (method, path, part) for path, item in document["paths"].items() for method, part in item.items()}


def parts(node: Any) -> Iterator[dict[str, Any]]:
    """Every object of the document."""
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from parts(child)


def test_every_property_and_parameter_is_described(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    silent = [
        f"{name}.{key}"
        for name, schema in schemas.items()
        for key, part in schema.get("properties", {}).items()
        if "description" not in part
    ]
    for name, (_, _, part) in operations(document).items():
        silent += [f"{name}({item['name']})" for item in part.get("parameters", ()) if not item.get("description")]
        silent += [] if part.get("description") else [name]
    assert silent == []


def test_references_resolve_and_no_schema_is_left_over(document: dict[str, Any]) -> None:
    named = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert {part["$ref"] for part in parts(document) if "$ref" in part} == named
    assert not [part for part in parts(document) if "$defs" in part]


def test_operations_keep_their_names(document: dict[str, Any]) -> None:
    names = [part["operationId"] for item in document["paths"].values() for part in item.values()]
    assert sorted(names) == sorted(OPERATIONS) and all(re.fullmatch(r"[a-z]+_[a-z_]+", name) for name in names)


def example(document: dict[str, Any], part: dict[str, Any]) -> Any:
    """The body that the document shows; None where the operation has none."""
    body = part.get("requestBody", {}).get("content", {}).get("application/json")
    if body is None:
        return None
    schema = body["schema"]
    schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return body["example"] if "example" in body else schema["examples"][0]


def test_what_people_write_has_an_example_that_holds(document: dict[str, Any]) -> None:
    tried = 0
    for _, _, part in operations(document).values():
        if (shown := example(document, part)) is not None:
            check(document, part["requestBody"]["content"]["application/json"]["schema"], shown)
            tried += 1
    for name, schema in document["components"]["schemas"].items():
        for shown in schema.get("examples", ()):
            check(document, {"$ref": f"#/components/schemas/{name}"}, shown)
            tried += 1
    assert tried > 30


def check(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(value)


@pytest.fixture
def ledger(tmp_path: Path, clock: FakeClock) -> Iterator[Ledger]:
    """The examples' job, with what its operations need: an evicted machine, two questions."""
    with Ledger(tmp_path / "ledger.db", clock=clock) as opened:
        write_past(opened, JOB)
        ask(opened, "evict-a", job=JOB)
        ask(opened, "evict-b", job=JOB)
        opened.append(kinds.SIGNAL, {"signal": {"kind": "kernel", "machine": "m2", "message": "oops", "time_s": NOW_S}}, job=JOB)
        yield opened


@pytest.fixture
def service(ledger: Ledger, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    async def nothing(self: object) -> None: ...

    monkeypatch.setattr(watchers.Watchers, "run", nothing)
    file = ServiceFile(jobs=JobsSettings(), standby_hosts=("10.0.0.0/16",))
    opened = open_service(Settings(ledger.location, status_files={JOB: tmp_path / "status.json"}, file=file), clock)
    (tmp_path / "status.json").write_text(json.dumps({"now_s": NOW_S - 1.0, "job": JOB, "phase": "running", "machines": []}))
    yield opened
    opened.close()


def test_every_operation_called_by_its_example_answers_what_it_promises(
    http: httpx.Client, as_: As, document: dict[str, Any], ledger: Ledger
) -> None:
    """Names in paths and bodies are those of a ledger that has them; all else is the document's own example."""
    found = operations(document)
    names = {"incident": f"{JOB}-1", "name": "m2"}
    keys = itertools.count()

    alice = as_("admin")  # a session is its token's own

    def call(operation: str) -> httpx.Response:
        method, path, part = found[operation]
        own = {"approve_decision": "evict-a", "reject_decision": "evict-b", "show_decision": "evict-a", "evict_machine": "m1"}.get(
            operation
        )
        own = own or ({"end_job": "new"}.get(operation, JOB) if path.startswith("/v1/jobs/") else None)
        body = json.loads(json.dumps(example(document, part)).replace("node-0002", "m2"))
        if operation == "register_job":
            body["name"] = "new"
        headers = (as_("source") if operation.startswith("report_") else alice) | {"Idempotency-Key": f"k{next(keys)}"}
        query = {
            item["name"]: {"machine": "m2"}.get(item["name"], "why")
            for item in part.get("parameters", ())
            if item["in"] == "query" and item["required"]
        }
        rows = part.get("requestBody", {}).get("content", {}).get("application/x-ndjson")
        sent = {"json": body} if body is not None else {"content": rows["example"]} if rows else {}
        headers |= {"Content-Type": "application/x-ndjson"} if rows else {}
        address = path.format(**names | ({"name": own} if own else {}))
        return http.request(method.upper(), address, params=query, headers=headers, **sent)

    for operation in [*sorted(set(found) - set(IN_ORDER) - ENDLESS - FILES), *IN_ORDER]:
        answer = call(operation)
        assert answer.is_success, (operation, answer.text)
        answers = found[operation][2]["responses"][str(answer.status_code)]
        if answer.status_code == 204:
            assert "content" not in answers and not answer.content
            continue
        promised = answers["content"]
        kind = answer.headers["content-type"].partition(";")[0]
        assert kind in promised, (operation, kind)
        if kind == "application/json":
            check(document, promised[kind]["schema"], answer.json())
        if operation == "begin_session":
            names["session"] = answer.json()["id"]
        if operation == "add_maintenance":
            names["window"] = http.get("/v1/maintenance", headers=as_()).json()["items"][0]["id"]
