"""Requests made up from the contract itself: whatever it allows or forbids, no answer is a 5xx, and answers are what it says."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from minder.record.store.tokens import TokenRecord, new_id
from serve.app import build_app
from serve.guards import UPLOAD_PATHS
from serve.settings import Limits, Settings
from serve.settings_file import ServiceFile
from serve.state import open_service
from serve.watching.settings import JobsSettings

pytestmark = [pytest.mark.lab, pytest.mark.package("schemathesis")]  # loaded by the tests: every quick run collects this file
EXAMPLES = int(os.environ.get("MINDER_CONTRACT_EXAMPLES", "2"))  # for each operation and mode


@pytest.fixture(scope="module")
def headers_and_schema(past: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], Any]]:
    """The document of a service that refuses no caller for being quick, and the headers of an administrator."""
    import schemathesis

    ledger = shutil.copy(past, tmp_path_factory.mktemp("contract") / "ledger.db")
    limits = Limits(rate=1e6, burst=1e6, failure_rate=1e6, failure_burst=1e6)
    service = open_service(Settings(str(ledger), limits=limits, file=ServiceFile(jobs=JobsSettings())))
    token = service.tokens.create(TokenRecord(new_id(), "alice", "admin", time.time(), "root"))
    yield {"Authorization": f"Bearer {token}"}, schemathesis.openapi.from_asgi("/v1/openapi.json", build_app(service))
    service.close()


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_no_made_up_request_breaks_the_service(headers_and_schema: tuple[dict[str, str], Any], mode: str) -> None:
    """A stream does not end, and uploads have hostile tests of their own."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.generation import GenerationMode
    from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

    checks = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
    headers, schema = headers_and_schema
    operations = [found.ok() for found in schema.get_all_operations()]
    tried = 0
    for operation in operations:
        if operation.path in ("/v1/events/stream", "/v1/scores/sessions/{session}/rows", *UPLOAD_PATHS):
            continue

        @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
        @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)))
        def send(case: Any) -> None:
            nonlocal tried
            tried += 1
            answer = case.call(headers=headers)
            assert answer.status_code < 500, case.as_curl_command()
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == ["application/problem+json"] and answer.json()["detail"]
            if answer.status_code != 405:
                case.validate_response(answer, checks=checks, headers=headers)

        with contextlib.suppress(Unsatisfiable):  # an operation without parameters has no wrong ones
            send()
    print(f"{mode}: {tried} requests of {len(operations)} operations")
    assert tried >= 5 * EXAMPLES
