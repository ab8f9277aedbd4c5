"""Signing in to the pages: a token becomes a session, forms belong to one, and nothing is shown to anybody else."""

from __future__ import annotations

import re

import httpx
import pytest

from minder.model.clock import FakeClock
from minder.record.store.sessions import SESSION_S
from minder.record.store.tokens import TokenRecord, new_id
from serve.pages.render import CONTENT_POLICY
from serve.pages.session import inside
from serve.state import Service
from tests.serve.browsing import field, send_token, token_of

NOW_S = 1_700_000_000.0


def test_a_token_opens_the_pages_and_signing_out_closes_them(http: httpx.Client, service: Service) -> None:
    answer = send_token(http, token_of(service))
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Secure" not in cookie
    page = http.get("/")
    assert page.status_code == 200 and "llm-2" in page.text
    held = dict(http.cookies)
    assert http.post("/sign-out", data={"csrf": field(page.text, "csrf")}, follow_redirects=False).status_code == 303
    http.cookies.update(held)  # who kept the cookie is out all the same
    assert http.get("/", follow_redirects=False).headers["location"] == "/sign-in?next=%2F"


def test_behind_tls_the_cookie_is_bound_to_it(http: httpx.Client, service: Service) -> None:
    http.headers["x-forwarded-proto"] = "https"
    form = http.get("/sign-in")
    fields = {"csrf": field(form.text, "csrf"), "next": "/", "token": token_of(service)}
    cookies = {"minder-sign-in": fields["csrf"]}
    answer = http.post("/sign-in", data=fields, headers={"cookie": f"minder-sign-in={cookies['minder-sign-in']}"}, follow_redirects=False)
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-minder-session=") and "Secure" in cookie and "Path=/" in cookie


@pytest.mark.parametrize(("token", "said"), [("", "wrong"), ("minder_x", "wrong"), ("minder_0123456789ab_" + "x" * 43, "wrong")])
def test_a_wrong_token_is_told_and_opens_nothing(http: httpx.Client, token: str, said: str) -> None:
    answer = send_token(http, token)
    assert answer.status_code == 401 and f"the token is {said}" in answer.text
    assert "minder-session" not in answer.headers.get("set-cookie", "")


def test_an_agents_token_is_no_persons(http: httpx.Client, service: Service) -> None:
    answer = send_token(http, token_of(service, "agent", machine="m1"))
    assert answer.status_code == 403 and "role viewer" in answer.text


def test_wrong_tokens_are_slowed_down(http: httpx.Client) -> None:
    statuses = [send_token(http, "wrong").status_code for _ in range(25)]
    assert statuses[0] == 401 and statuses[-1] == 429


def test_a_session_ends_with_its_time_and_with_its_token(http: httpx.Client, service: Service, clock: FakeClock) -> None:
    send_token(http, token_of(service))
    clock.sleep(SESSION_S - 1.0)
    assert http.get("/", follow_redirects=False).status_code == 200
    clock.sleep(2.0)
    assert http.get("/", follow_redirects=False).status_code == 303
    record = TokenRecord(new_id(), "short", "viewer", NOW_S, "root")
    send_token(http, service.tokens.create(record))
    assert http.get("/", follow_redirects=False).status_code == 200
    service.tokens.revoke("short", clock.now_s(), "root")
    assert http.get("/", follow_redirects=False).status_code == 303


def test_a_form_of_another_session_does_nothing(http: httpx.Client, service: Service) -> None:
    send_token(http, token_of(service))
    for fields in ({}, {"csrf": ""}, {"csrf": "0" * 64}, {"csrf": "\udcff"}):
        answer = http.post("/sign-out", content=_encoded(fields), headers={"content-type": "application/x-www-form-urlencoded"})
        assert answer.status_code == 403 and "not of your session" in answer.text
    assert http.post("/sign-out", json={"csrf": "x"}).status_code == 415
    assert http.get("/", follow_redirects=False).status_code == 200


def _encoded(fields: dict[str, str]) -> bytes:
    return "&".join(f"{name}={value}" for name, value in fields.items()).encode("utf-8", "surrogatepass")


def test_nobody_is_signed_in_by_another_sites_form(http: httpx.Client, service: Service) -> None:
    token = token_of(service)
    answer = http.post("/sign-in", data={"csrf": "x", "token": token, "next": "/"}, follow_redirects=False)
    assert answer.status_code == 403 and "minder-session" not in answer.headers.get("set-cookie", "")


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/a\nb", ""])
def test_signing_in_leads_nowhere_else(wanted: str) -> None:
    assert inside(wanted) == "/"


def test_a_link_from_elsewhere_comes_back_with_the_cookie(http: httpx.Client) -> None:
    answer = http.get("/?a=1", headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 200 and 'content="0; url=/?a=1"' in answer.text
    assert "evict" not in answer.text


def test_a_poll_of_nobody_leads_to_the_sign_in(http: httpx.Client) -> None:
    answer = http.get("/parts/fleet", headers={"HX-Request": "true"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/sign-in")


def test_pages_run_no_script_but_their_own(http: httpx.Client, service: Service) -> None:
    send_token(http, token_of(service))
    for path in ("/", "/sign-in", "/parts/fleet", "/no-such-page"):
        answer = http.get(path)
        assert answer.headers["content-security-policy"] == CONTENT_POLICY and "unsafe" not in CONTENT_POLICY
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["x-frame-options"] == "DENY"
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", answer.text), path


def test_the_contract_is_of_the_api_alone(http: httpx.Client) -> None:
    assert all(path.startswith("/v1/") for path in http.get("/v1/openapi.json").json()["paths"])


def test_an_api_path_answers_with_a_problem_and_any_other_with_a_page(http: httpx.Client) -> None:
    assert http.get("/v1/nothing").headers["content-type"] == "application/problem+json"
    page = http.get("/nothing")
    assert page.status_code == 404 and page.headers["content-type"].startswith("text/html") and "no such page" in page.text
