"""SECURITY.md says what each kind of token opens. Here each is stolen, and every route of service, agent and launcher is tried with it."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from minder.edge.agent.options import AgentOptions
from minder.edge.agent.service import build_application
from minder.edge.launcher.endpoints import build_endpoints
from minder.edge.launcher.events import EventRing
from minder.edge.launcher.updates import Updates
from minder.record.incidents import Ledger
from minder.record.store.tokens import TokenRecord, new_id
from minder.wire.machine_tokens import give_token
from minder.wire.token_files import TokenFile
from minder.wire.tokens import read_token
from serve.app import build_app
from serve.settings import Limits, Settings
from serve.state import Service, open_service

PAGE = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
SHARED, METRICS = "one-for-all", "metrics-only"
ROLES = ("viewer", "operator", "admin", "source", "agent", "launcher")
HELD = ("metrics", "its own", "of another machine", "shared")
UPLOADS = ("/v1/scores", "/v1/stacks", "/v1/collectives")  # sent as what is not taken: nothing is scored
BODIES: dict[str, Any] = {
    "/v1/signals": {"signals": [{"id": "a", "kind": "xid", "machine": "m1", "code": 79}]},
    "/v1/signals/alertmanager": {"alerts": []},
    "/v1/signals/gpud": [{"component": "disk"}],
}


def table(process: str) -> dict[str, dict[str, bool]]:
    """ "GET /v1/state" to who holds it to whether it opens that."""
    lines = PAGE[PAGE.index(f"\n| {process} | none |") + 1 :].splitlines()
    heads = [cell.strip() for cell in lines[0].strip("|").split("|")][1:]
    found: dict[str, dict[str, bool]] = {}
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert set(cells) <= {"yes", "no"} and len(cells) == len(heads), line
        found |= {
            route: {head: cell == "yes" for head, cell in zip(heads, cells, strict=True)} for route in re.findall(r"`([^`]+)`", first)
        }
    return found


def opened(status: int) -> bool:
    assert status < 500 and status not in (404, 405, 429), status
    return status not in (401, 403)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def try_all(app: Any, route: str, tokens: dict[str, str]) -> dict[str, bool]:
    method, path = route.split()

    async def ask() -> dict[str, bool]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://m1") as client:
            return {
                who: opened(
                    (await client.request(method, path, headers=bearer(token), content="{}" if method == "POST" else None)).status_code
                )
                for who, token in tokens.items()
            }

    return asyncio.run(ask())


@pytest.fixture
def held(tmp_path: Path) -> dict[str, str]:
    """Tokens and their holders: those of two machines, and those that all machines share."""
    for name in ("m1", "m2"):
        give_token(tmp_path / "tokens", name)
    own, other = (read_token(tmp_path / "tokens" / name) for name in ("m1", "m2"))
    return {"none": "", "metrics": METRICS, "its own": own, "of another machine": other}


class Supervisor:
    """What the launcher's routes read of one."""

    events, started_s, generation = EventRing(), 0.0, 0

    class settings:
        probe_folder = allow_updates = None
        command = ("train.py",)
        job, machine, slots, allow_env, env, run_dir = "demo", "m1", 1, (), {}, Path("no-such-run")

    updates, update, skips = Updates(settings), 0, False  # type: ignore[arg-type]

    def views(self) -> list[Any]:
        return []

    def kept_steps(self) -> dict[str, Any]:
        return {}

    def warm(self, order: Any) -> dict[str, Any]:
        return {"warm": True}

    def figures(self) -> Any:
        from minder.edge.launcher.metrics import LauncherFigures, Tally

        return LauncherFigures("demo", "m1", 0.0, 0, 1, (), Tally())


def application(process: str, token: TokenFile | str, folder: Path) -> Any:
    if process == "launcher":
        return build_endpoints(Supervisor(), token, METRICS)  # type: ignore[arg-type]
    return build_application(
        AgentOptions(machine="m1", token=token, metrics_token=METRICS, run_dir=folder / "run", gpu="off", discover=False)
    )


def test_no_option_of_any_verb_takes_a_secret_itself() -> None:
    """Command lines can be read by all users of a machine; a file's path may."""
    options = set(re.findall(r"`(--[a-z-]+)`", (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")))
    secret = {name for name in options if re.search(r"token|password|secret|key", name)}
    assert "--token-file" in secret and [name for name in secret if not re.search(r"-(file|dir|key)$", name)] == []


@pytest.mark.parametrize("process", ["agent", "launcher"])
def test_a_machines_routes_answer_each_token_as_the_page_says(process: str, held: dict[str, str], tmp_path: Path) -> None:
    own = application(process, TokenFile(tmp_path / "tokens" / "m1", "m1"), tmp_path)
    shared = application(process, SHARED, tmp_path)
    routes = table(process)
    assert set(routes) == {
        f"{method} {route.path}" for route in own._app.routes for method in route.methods if method != "HEAD"
    }, "every route stands on the page"  # fmt: skip
    for route, said in routes.items():
        found = try_all(own, route, held) | try_all(shared, route, {"shared": SHARED})
        assert found == said, route


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    Ledger(str(tmp_path / "ledger.db")).close()
    many = Limits(failure_burst=1000.0, burst=1000.0, signal_burst=1000.0)
    found = open_service(Settings(str(tmp_path / "ledger.db"), limits=many))
    yield found
    found.close()


def test_the_services_routes_answer_each_role_as_the_page_says(service: Service) -> None:
    routes = table("service")
    tokens = {"none": ""}
    for role in ROLES:
        machine = "m1" if role in ("agent", "launcher") else None
        tokens[role] = service.tokens.create(TokenRecord(new_id(), role, role, time.time(), "test", None, machine))
    with TestClient(build_app(service), raise_server_exceptions=False) as http:
        document = http.get("/v1/openapi.json").json()
        assert set(routes) == {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
        for route, said in routes.items():
            assert {who: _opens(http, route, token) for who, token in tokens.items()} == said, route


def _opens(http: TestClient, route: str, token: str) -> bool:
    method, path = route.split()
    headers = bearer(token) | {"Idempotency-Key": new_id()}
    there = path.format(incident="llm-1", name="m1", window="w1", session="s1")
    if path == "/v1/events/stream" and token:
        there += "?kind=no-such-kind"  # its answer would have no end
    there += "?machine=m1" if path == "/v1/signals/gpud" else ""
    body = None if method == "GET" else json.dumps(BODIES.get(path, {}))
    answer = http.request(
        method, there, headers=headers | {"Content-Type": "text/plain" if path in UPLOADS else "application/json"}, content=body
    )
    return answer.status_code not in (401, 403)
