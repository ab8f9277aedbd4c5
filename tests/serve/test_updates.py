"""A job's code over the API: received whole, ordered under the operator's name, taken back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.record.client import Client
from minder.record.incidents import Ledger, kinds

As = Callable[..., dict[str, str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "lib").mkdir(parents=True)
    (folder / "train.py").write_bytes(b"#" * 700_000)  # several pieces
    (folder / "lib" / "__init__.py").write_text("")
    return folder


def post(http: httpx.Client, path: str, who: dict[str, str], key: str = "a", **body: Any) -> httpx.Response:
    return http.post(f"/v1/jobs/llm/{path}", json=body, headers=who | {"Idempotency-Key": key})


def test_code_is_sent_in_pieces_and_ordered_once(http: httpx.Client, as_: As, ledger: Ledger, project: Path) -> None:
    alice = as_("operator", name="alice")
    client = Client(str(http.base_url), "x", http=http)
    http.headers.update(alice)
    digest = client.send_code("llm", project)
    assert client.send_code("llm", project) == digest
    client.update_job("llm", "lower rate", code=digest, args=["--lr", "1"], urgent=True)
    (event,) = ledger.events(kinds=[kinds.UPDATE_ASKED])
    said = event.payload
    assert (said["code"], said["files"], said["size_bytes"], said["by"], said["urgent"]) == (digest, 2, 700_000, "alice", True)
    assert client.roll_back_job("llm", "no").detail.endswith("runs version 0")
    assert ledger.events(kinds=[kinds.UPDATE_ASKED])[-1].payload["to"] == 0


def test_who_may_not_and_what_cannot_be_is_refused(http: httpx.Client, as_: As, ledger: Ledger) -> None:
    alice, file = as_("operator", name="alice"), {"path": "../x.py", "size_bytes": 1, "sha256": "0" * 64}
    tries = [
        (post(http, "updates", as_("viewer"), args=["x"], reason="y"), 403),
        (post(http, "code", as_("viewer"), files=[file | {"path": "x.py"}]), 403),
        (post(http, "updates", as_("operator", jobs=("other",)), "b", args=["x"], reason="y"), 403),
        (post(http, "updates", alice, "c", reason="changes nothing"), 422),
        (post(http, "updates", alice, "d", code="0" * 64, reason="not here"), 409),
        (post(http, "code", alice, files=[file]), 422),
        (post(http, "code/pieces", alice, file=file, offset=0, data="AA=="), 422),
        (post(http, "code/pieces", alice, file=file | {"path": "x.py"}, offset=0, data="AA=="), 422),
        (post(http, "rollback", alice, "e", reason="nothing to take back"), 409),
    ]
    assert [answer.status_code for answer, _ in tries] == [wanted for _, wanted in tries], [answer.text for answer, _ in tries]
    assert ledger.events(kinds=[kinds.UPDATE_ASKED]) == []
