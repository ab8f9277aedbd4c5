"""What is the same for all who look is built once; nobody sees what is older than the ledger, or what is not theirs to see."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from minder.record.incidents import Ledger, kinds
from serve.pages import job as page
from serve.shared_parts import SharedParts
from serve.state import Service
from tests.serve.browsing import send_token, token_of


def test_a_part_is_built_once_for_each_state() -> None:
    parts, built = SharedParts(), list[int]()

    def ask(key: str, state: int) -> bytes:
        return parts.get(key, lambda: state, lambda: built.append(state) or str(state).encode()).body  # type: ignore[func-returns-value]

    assert [ask("a", 1), ask("a", 1), ask("b", 1), ask("a", 2), ask("a", 2)] == [b"1", b"1", b"1", b"2", b"2"]
    assert built == [1, 1, 2]


def test_a_part_that_cannot_be_built_is_asked_for_again() -> None:
    parts = SharedParts()

    def fails() -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        parts.get("a", lambda: 1, fails)
    assert parts.get("a", lambda: 1, lambda: b"now").body == b"now"


def test_what_nobody_asks_for_is_forgotten_first() -> None:
    parts, built = SharedParts(), list[int]()
    for key in [*range(64), 0, 64, 0, 1]:
        parts.get(key, lambda: 1, lambda key=key: built.append(key) or b"")  # type: ignore[misc]
    assert built == [*range(64), 64, 1]


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The axes by which the job's grid was built."""
    found: list[str] = []
    real: Callable[..., dict[str, object]] = page._values
    monkeypatch.setattr(page, "_values", lambda service, detail, by, rank: found.append(by) or real(service, detail, by, rank))  # type: ignore[func-returns-value]
    return found


def test_two_who_look_at_a_job_cost_one_grid_and_see_what_happens_at_once(
    http: httpx.Client, service: Service, ledger: Ledger, builds: list[str]
) -> None:
    tokens = [token_of(service) for _ in range(2)]  # a new token is an event of the ledger too
    pages = []
    for token in tokens:
        http.cookies.clear()
        send_token(http, token)
        pages.append(http.get("/jobs/llm/now?by=rack"))
    assert builds == ["rack"] and pages[0].content == pages[1].content
    assert http.get("/jobs/llm/now?by=rack", headers={"If-None-Match": pages[0].headers["etag"]}).status_code == 304
    ledger.append(kinds.BARRED, {"machine": "m1", "reason": "x"}, job="llm")  # in the same second
    assert http.get("/jobs/llm/now?by=rack").text != pages[0].text and builds == ["rack", "rack"]


def test_what_one_may_see_is_not_kept_for_another_who_may_not(http: httpx.Client, service: Service) -> None:
    send_token(http, token_of(service))
    assert http.get("/jobs/llm/now").status_code == http.get("/jobs/llm/telemetry").status_code == 200
    http.cookies.clear()
    send_token(http, token_of(service, jobs=("other",)))
    assert http.get("/jobs/llm/now").status_code == http.get("/jobs/llm/telemetry").status_code == 403
    assert http.get("/jobs/none/now").status_code in (403, 404)
