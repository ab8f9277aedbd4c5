"""What a browser does at the pages, without one."""

from __future__ import annotations

import re

import httpx

from minder.record.store.tokens import TokenRecord, new_id
from serve.state import Service

NOW_S = 1_700_000_000.0


def token_of(service: Service, role: str = "viewer", **fields: object) -> str:
    return service.tokens.create(TokenRecord(new_id(), f"{role}-{new_id()}", role, NOW_S, "root", **fields))  # type: ignore[arg-type]


def field(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None, page
    return found.group(1)


def send_token(http: httpx.Client, token: str, wanted: str = "/") -> httpx.Response:
    form = http.get("/sign-in", params={"next": wanted}).text
    fields = {"csrf": field(form, "csrf"), "next": field(form, "next"), "token": token}
    return http.post("/sign-in", data=fields, follow_redirects=False)
