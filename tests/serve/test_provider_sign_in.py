"""Signing in to the pages with an identity provider: a strict one in a process of its own, and everything that a liar tries."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from minder.model.clock import FakeClock
from minder.record.incidents import Ledger, kinds
from minder.record.store.sessions import SESSION_S
from serve.identity.pending import PendingSignIns
from serve.settings import Settings
from serve.settings_file import ServiceFile
from serve.state import Service, open_service
from tests.serve.browsing import field, send_token, token_of
from tests.serve.provider_site import SECRET, Site

PUBLIC = "http://testserver"


@pytest.fixture(scope="module")
def confidential() -> Iterator[Site]:
    site = Site(SECRET)
    yield site
    site.stop()


@pytest.fixture
def provider(confidential: Site) -> Site:
    confidential.tell()
    return confidential


def file_of(site: Site, folder: Path, *, public: bool = False, out: bool = False, **more: object) -> ServiceFile:
    secret = folder / "client.secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    own = {} if public else {"client_secret_file": str(secret)}
    sign_in = {"client_id": "minder pages", "label": "Example ID", "sign_out_there": out} | own
    fields = {"audience": "minder", "roles": {"ml-oncall": "operator", "ml": "viewer"}, "name_claim": "email", "timeout_s": 20.0}
    return ServiceFile.model_validate({"public_url": PUBLIC, "oidc": fields | {"issuer": site.issuer, "sign_in": sign_in} | more})


@pytest.fixture
def file(provider: Site, tmp_path: Path) -> ServiceFile:
    return file_of(provider, tmp_path)


@pytest.fixture
def service(ledger: Ledger, clock: FakeClock, file: ServiceFile) -> Iterator[Service]:
    opened = open_service(Settings(ledger.location, file=file), clock)
    yield opened
    opened.close()


def leave(http: httpx.Client, wanted: str = "/") -> httpx.Response:
    return http.get("/sign-in/provider", params={"next": wanted}, follow_redirects=False)


def come_back(http: httpx.Client, site: Site, wanted: str = "/", name: str = "alice") -> httpx.Response:
    left = leave(http, wanted)
    assert left.status_code == 303, left.text
    back = urlsplit(site.log_in(left.headers["location"], name))
    assert f"{back.scheme}://{back.netloc}" == PUBLIC
    return http.get(f"{back.path}?{back.query}", headers={"sec-fetch-site": "cross-site"}, follow_redirects=False)


def is_in(http: httpx.Client) -> bool:
    return http.get("/", follow_redirects=False).status_code == 200


def test_a_person_signs_in_acts_and_signs_out(http: httpx.Client, provider: Site, ledger: Ledger) -> None:
    assert "Sign in with Example ID" in http.get("/sign-in?next=%2Fpauses").text and "Token" in http.get("/sign-in").text
    answer = come_back(http, provider, "/pauses?x=1")
    assert answer.status_code == 200 and 'content="0; url=/pauses?x=1"' in answer.text
    cookies = answer.headers.get_list("set-cookie")
    (session,) = [line for line in cookies if line.startswith("minder-session=")]
    assert "HttpOnly" in session and "SameSite=strict" in session
    page = http.get("/pauses").text
    assert "alice@example.org" in page and "(operator" in page
    fields = {name: field(page, name) for name in ("csrf", "key")}
    sent = http.post("/pauses", data=fields | {"scope": "job", "target": "llm", "for": "1h", "reason": "firmware"})
    assert sent.status_code == 200, sent.text
    (signed_in,) = ledger.events(kinds=[kinds.SIGNED_IN])
    (pause,) = ledger.events(kinds=[kinds.PAUSE])
    for event in (signed_in, pause):
        said = {"by": "alice@example.org", "issuer": provider.issuer, "subject": "u-alice"}
        assert said.items() <= event.payload.items() and event.payload["token"].startswith("oidc:")
    assert "u-alice of " + provider.issuer in http.get("/audit").text
    assert http.post("/sign-out", data={"csrf": "wrong"}).status_code == 403 and is_in(http)
    held = dict(http.cookies)
    http.post("/sign-out", data={"csrf": field(http.get("/").text, "csrf")}, follow_redirects=False)
    http.cookies.update(held)
    assert not is_in(http)


def sign_out(http: httpx.Client) -> httpx.Response:
    return http.post("/sign-out", data={"csrf": field(http.get("/").text, "csrf")}, follow_redirects=False)


def test_whoever_signs_out_is_signed_out_at_the_provider_too_if_the_site_wishes(
    ledger: Ledger, clock: FakeClock, provider: Site, tmp_path: Path, as_client: Open
) -> None:
    with as_client(file_of(provider, tmp_path, out=True)) as http:
        cookies = come_back(http, provider).headers.get_list("set-cookie")
        (hint,) = [line for line in cookies if line.startswith("minder-id-token=")]
        assert "HttpOnly" in hint and "SameSite=strict" in hint and "Path=/sign-out" in hint  # no other request carries it
        answer = sign_out(http)
        assert answer.status_code == 200 and not is_in(http)
        there = html.unescape(re.findall(r'url=([^"]+)"', answer.text)[0])
        assert there.startswith(f"{provider.issuer}/sign-out?realm=ml&")
        back = provider.http.get(there)
        assert (back.status_code, back.headers["location"]) == (302, f"{PUBLIC}/sign-in")
        assert provider.http.get("/control").json()["out"][-1] == "u-alice"
        assert "minder-id-token" not in dict(http.cookies)

        assert send_token(http, token_of(http.app.state.service)).status_code == 303  # type: ignore[attr-defined]
        assert sign_out(http).headers["location"] == "/sign-in"  # a token's session began here and ends here


def test_a_provider_that_knows_no_sign_out_leaves_nobody_signed_in_here(
    ledger: Ledger, clock: FakeClock, provider: Site, tmp_path: Path, as_client: Open
) -> None:
    provider.tell(lie="no sign-out")
    with as_client(file_of(provider, tmp_path, out=True)) as http:
        come_back(http, provider)
        answer = sign_out(http)
        assert "offers no sign-out" in answer.text and "perhaps not there" in answer.text and not is_in(http)


def test_what_is_sent_to_the_provider(http: httpx.Client, provider: Site) -> None:
    left = leave(http)
    asked = parse_qs(urlsplit(left.headers["location"]).query)
    assert asked["redirect_uri"] == [PUBLIC + "/sign-in/provider/back"] and asked["code_challenge_method"] == ["S256"]
    cookie = left.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie
    assert not {asked["state"][0], asked["nonce"][0]} & set(http.cookies.values())  # who sees the address cannot finish it elsewhere
    http.headers["x-forwarded-proto"] = "https"
    cookie = leave(http).headers["set-cookie"]
    assert cookie.startswith("__Host-minder-provider=") and "Secure" in cookie and "Path=/" in cookie


@pytest.mark.parametrize("in_form", [False, True])
def test_a_secret_goes_where_the_provider_takes_it(http: httpx.Client, provider: Site, in_form: bool) -> None:
    provider.tell(in_form=in_form)
    come_back(http, provider)
    assert is_in(http)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_keys_may_be_rotated_between_two_sign_ins(http: httpx.Client, provider: Site, algorithm: str) -> None:
    for _ in range(2):
        http.cookies.clear()
        provider.tell(rotate=algorithm)
        come_back(http, provider)
        assert is_in(http)


def test_roles_and_jobs_are_those_of_the_claims(http: httpx.Client, service: Service, provider: Site) -> None:
    provider.tell(claims={"roles": ["ml"]})
    come_back(http, provider)
    page = http.get("/pauses").text
    assert "(viewer)" in page and 'action="/pauses"' not in page
    assert service.code_flow is not None


def test_a_claim_limits_a_person_to_jobs(ledger: Ledger, clock: FakeClock, provider: Site, tmp_path: Path, as_client: Open) -> None:
    with as_client(file_of(provider, tmp_path, jobs_claim="jobs")) as http:
        provider.tell(claims={"jobs": ["vision"]})
        come_back(http, provider)
        assert is_in(http) and "llm" not in http.get("/incidents").text
        assert http.get("/incidents/llm-1").status_code == 403
        http.cookies.clear()
        provider.tell()
        come_back(http, provider)  # without the claim: of no job
        assert is_in(http) and "llm" not in http.get("/incidents").text


def test_a_public_client_has_no_secret(tmp_path: Path, as_client: Open) -> None:
    site = Site(None)
    try:
        with as_client(file_of(site, tmp_path, public=True)) as http:
            come_back(http, site)
            assert is_in(http)
    finally:
        site.stop()


FLOW_LIES = {
    "nonce": "nonce", "no nonce": "nonce", "audience": "InvalidAudience", "two audiences": "azp", "another client": "azp",
    "issuer": "InvalidIssuer", "expired": "Expired", "unsigned": "algorithm", "another key": "InvalidSignature", "no role": "no role",
    "no token": "no ID token", "html": "no JSON", "huge": "larger than", "error": "access_denied", "redirect": "",
    "another iss": "another identity provider",
}  # fmt: skip


@pytest.mark.parametrize("lie", FLOW_LIES)
@pytest.mark.lab
def test_a_provider_that_lies_signs_nobody_in(http: httpx.Client, provider: Site, ledger: Ledger, lie: str) -> None:
    provider.tell(lie=lie)
    answer = come_back(http, provider)
    assert answer.status_code in (401, 503) and "Not signed in:" in answer.text and FLOW_LIES[lie] in answer.text
    assert "minder-session" not in str(answer.headers.get_list("set-cookie")) and not is_in(http)
    assert ledger.events(kinds=[kinds.SIGNED_IN]) == [] and "/elsewhere" not in provider.asked()


@pytest.mark.parametrize(
    ("lie", "said"),
    [("silent", "within 1 s"), ("trickle", "within 1 s"), ("server error", "HTTP 500"), ("discovery of another", "another issuer")],
)
def test_a_provider_that_cannot_be_asked_is_one_line_and_no_wait(
    provider: Site, tmp_path: Path, as_client: Open, lie: str, said: str
) -> None:
    with as_client(file_of(provider, tmp_path, timeout_s=1.0 if "within" in said else 20.0)) as http:
        provider.tell(lie=lie)
        answers = [leave(http), leave(http)]
        assert [answer.status_code for answer in answers] == [503, 503] and said in answers[1].text
        assert provider.asked() == ["/.well-known/openid-configuration"]  # the second is answered from what was learnt of the first
        assert http.get("/v1/health").status_code == 200
        assert send_token(http, token_of(http.app.state.service)).status_code == 303  # type: ignore[attr-defined]


def test_a_provider_that_is_gone_is_one_line(tmp_path: Path, as_client: Open) -> None:
    site = Site(None)
    file = file_of(site, tmp_path, public=True)
    with as_client(file) as http:
        left = leave(http)
        back = urlsplit(site.log_in(left.headers["location"]))
        site.stop()
        answer = http.get(f"{back.path}?{back.query}", follow_redirects=False)
        assert answer.status_code == 503 and "cannot be reached" in answer.text and not is_in(http)


def test_a_code_and_a_state_count_once(http: httpx.Client, provider: Site, service: Service) -> None:
    left = leave(http)
    back = urlsplit(provider.log_in(left.headers["location"]))
    cookies = dict(http.cookies)
    assert http.get(f"{back.path}?{back.query}", follow_redirects=False).status_code == 200
    http.cookies.clear()
    http.cookies.update(cookies)
    again = http.get(f"{back.path}?{back.query}", follow_redirects=False)
    assert again.status_code == 401 and "grown old" in again.text and not is_in(http)
    assert provider.asked().count("/token") == 1
    other = leave(http)  # a new sign-in with the code of the old one
    state = parse_qs(urlsplit(other.headers["location"]).query)["state"][0]
    replayed = {"state": state, "code": parse_qs(back.query)["code"][0], "iss": provider.issuer}
    answer = http.get(back.path, params=replayed, follow_redirects=False)
    assert answer.status_code == 401 and "invalid_grant" in answer.text and "<script>alert" not in answer.text and not is_in(http)


def test_a_sign_in_is_finished_in_the_browser_that_began_it(http: httpx.Client, provider: Site) -> None:
    left = leave(http)
    back = urlsplit(provider.log_in(left.headers["location"], "mallory"))
    http.cookies.clear()  # the victim's browser, with the attacker's address
    answer = http.get(f"{back.path}?{back.query}", follow_redirects=False)
    assert answer.status_code == 401 and not is_in(http) and "/token" not in provider.asked()


@pytest.mark.parametrize(
    "query", ["", "state=x&code=y", "state=%00&code=%ff", "error=%3Cscript%3Ealert(1)%3C/script%3E", "state=" + "x" * 300]
)
def test_made_up_answers_are_refused(http: httpx.Client, provider: Site, query: str) -> None:
    answer = http.get(f"/sign-in/provider/back?{query}", follow_redirects=False)
    assert answer.status_code in (401, 422) and "<script>alert" not in answer.text and provider.asked() == []


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_signing_in_leads_nowhere_else(http: httpx.Client, provider: Site, wanted: str) -> None:
    answer = come_back(http, provider, wanted)
    assert 'content="0; url=/"' in answer.text and "evil" not in answer.text


def test_a_session_ends_with_its_time_and_with_the_terms_it_began_under(
    http: httpx.Client, provider: Site, service: Service, clock: FakeClock, ledger: Ledger, tmp_path: Path, as_client: Open
) -> None:
    come_back(http, provider)
    with as_client(file_of(provider, tmp_path)) as same, as_client(file_of(provider, tmp_path, roles={"ml-oncall": "viewer"})) as other:
        for client, inside in ((same, True), (other, False)):
            client.cookies.update(dict(http.cookies))
            assert is_in(client) is inside
    clock.sleep(8 * 3600.0 - 1.0)
    assert is_in(http)
    clock.sleep(2.0)
    assert not is_in(http)
    assert SESSION_S > 8 * 3600.0


def test_sign_ins_are_slowed_down_and_bounded(http: httpx.Client, provider: Site) -> None:
    statuses = [leave(http).status_code for _ in range(40)]
    assert statuses[0] == 303 and statuses[-1] == 429
    now_s = 0.0
    pending = PendingSignIns(clock=lambda: now_s)
    begun = [pending.begin("/") for _ in range(3000)]
    assert len(pending) == 2000
    assert pending.take(begun[0].state, begun[0].browser) is None
    assert pending.take(begun[-1].state, "another") is None and pending.take(begun[-1].state, begun[-1].browser) is None
    now_s = 599.0
    assert pending.take(begun[-2].state, begun[-2].browser) == begun[-2]
    now_s = 601.0
    assert pending.take(begun[-3].state, begun[-3].browser) is None


def test_without_a_provider_there_is_nothing_to_leave_for(as_client: Open) -> None:
    with as_client(ServiceFile()) as http:
        assert leave(http).status_code == 404 and "/sign-in/provider" not in http.get("/sign-in").text


def test_settings_that_could_not_work_are_refused(provider: Site, tmp_path: Path) -> None:
    good = file_of(provider, tmp_path).model_dump(mode="json")
    assert ServiceFile.model_validate(good).oidc is not None
    for wrong, said in (
        (good | {"public_url": None}, "public_url"),
        (good | {"oidc": good["oidc"] | {"sign_in": {"client_id": "x", "scopes": ["email"]}}}, "openid"),
        (good | {"oidc": good["oidc"] | {"issuer": "no address"}}, "issuer"),
        (good | {"oidc": good["oidc"] | {"sign_in": {"client_id": "x", "session_s": 86_400.0}}}, "43200"),
    ):
        with pytest.raises(ValueError, match=said):
            ServiceFile.model_validate(wrong)


Open = Callable[[ServiceFile], httpx.Client]


@pytest.fixture
def as_client(ledger: Ledger, clock: FakeClock) -> Iterator[Open]:
    """as_client(file) -> a client of another service on the same ledger."""
    from starlette.testclient import TestClient

    from serve.app import build_app

    opened: list[Service] = []

    def start(file: ServiceFile) -> httpx.Client:
        opened.append(open_service(Settings(ledger.location, file=file), clock))
        return TestClient(build_app(opened[-1]), raise_server_exceptions=False)

    yield start
    for service in opened:
        service.close()
