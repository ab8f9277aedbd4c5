"""OpenID Connect tokens: a real JWKS server, real keys, and everything that a forger tries."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from minder.record.incidents import Ledger, kinds
from serve.identity.keys import KeyRing, NoKeysError
from serve.identity.oidc import Oidc, RefusedTokenError
from serve.identity.oidc_settings import OidcSettings
from serve.state import Service

ISSUER, AUDIENCE = "https://id.example.org", "minder"
OURS = rsa.generate_private_key(public_exponent=65537, key_size=2048)
THEIRS = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
PEM = OURS.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def jwk(key: Any, kid: str, **more: str) -> dict[str, Any]:
    algorithm = ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else RSAAlgorithm
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig", **more}


class Provider:
    """Serves keys on loopback."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [
            jwk(OURS, "one", alg="RS256"),
            jwk(CURVE, "curve"),
            {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"},
        ]
        self.asked: list[str] = []
        self.status = 200
        provider = self

        class Get(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append(self.path)
                body = json.dumps({"keys": provider.keys}).encode()
                self.send_response(provider.status)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Get)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def provider() -> Iterator[Provider]:
    opened = Provider()
    yield opened
    opened.server.shutdown()
    opened.server.server_close()


def settings_of(provider: Provider, **more: Any) -> OidcSettings:
    fields: dict[str, Any] = {"roles_claim": "realm_access.roles", "jobs_claim": "jobs", "name_claim": "email", **more}
    return OidcSettings(issuer=ISSUER, audience=AUDIENCE, jwks_url=provider.url, roles={"ml-oncall": "operator", "ml": "viewer"}, **fields)


@pytest.fixture
def oidc(provider: Provider) -> Oidc:
    return Oidc(settings_of(provider))


def claims_of(**more: Any) -> dict[str, Any]:
    now_s = int(time.time())
    own = {"iss": ISSUER, "aud": AUDIENCE, "sub": "u-17", "iat": now_s, "exp": now_s + 600, "email": "alice@example.org"}
    found = own | {"realm_access": {"roles": ["ml", "ml-oncall"]}, "jobs": ["llm"]} | more
    return {name: value for name, value in found.items() if value is not None}


def token_of(key: Any = OURS, algorithm: str = "RS256", headers: dict[str, Any] | None = None, **more: Any) -> str:
    return jwt.encode(claims_of(**more), key, algorithm=algorithm, headers={"kid": "one"} | (headers or {}))


def raw(header: dict[str, Any], claims: dict[str, Any], secret: bytes | None = None) -> str:
    """What no library would make."""

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    body = f"{part(json.dumps(header).encode())}.{part(json.dumps(claims).encode())}"
    return f"{body}.{part(hmac.new(secret, body.encode(), hashlib.sha256).digest()) if secret is not None else ''}"


def test_a_good_token_is_somebody(oidc: Oidc) -> None:
    caller = oidc.verify(token_of())
    assert (caller.name, caller.role, caller.jobs) == ("alice@example.org", "operator", ("llm",))
    assert oidc.verify(token_of(CURVE, "ES256", {"kid": "curve"})).token == caller.token
    assert oidc.verify(token_of(jobs=None)).jobs == ()  # a claim that is missing covers nothing
    assert oidc.verify(token_of(exp=int(time.time()) - 20)).role == "operator"  # within the leeway


HOSTILE: dict[str, Callable[[], str]] = {
    "alg none": lambda: raw({"alg": "none", "kid": "one"}, claims_of()),
    "an empty subject": lambda: token_of(sub=""),
    "a subject of blanks": lambda: token_of(sub="  "),
    "an end that is text": lambda: token_of(exp=str(int(claims_of()["exp"]))),
    "alg None": lambda: raw({"alg": "NoNe", "kid": "one"}, claims_of()),
    "HS256 with the public key": lambda: raw({"alg": "HS256", "kid": "one"}, claims_of(), PEM),
    "HS256 with the published secret": lambda: raw({"alg": "HS256", "kid": "shared"}, claims_of(), b"secret"),
    "RS256 header, HMAC inside": lambda: raw({"alg": "RS256", "kid": "one"}, claims_of(), PEM),
    "another key": lambda: token_of(THEIRS),
    "another key of its own": lambda: token_of(THEIRS, headers={"jwk": jwk(THEIRS, "one"), "jku": "http://127.0.0.1:1/keys"}),
    "an algorithm that the key is not for": lambda: token_of(OURS, "RS512"),
    "an elliptic key's name": lambda: token_of(OURS, headers={"kid": "curve"}),
    "kid is a path": lambda: token_of(headers={"kid": "../../../../etc/passwd"}),
    "kid is a query": lambda: token_of(headers={"kid": "one' OR '1'='1"}),
    "kid is a list": lambda: raw({"alg": "RS256", "kid": ["one"]}, claims_of(), PEM),
    "kid is huge": lambda: token_of(headers={"kid": "x" * 5000}),
    "another key without a name": lambda: jwt.encode(claims_of(), THEIRS, algorithm="RS256"),
    "crit": lambda: token_of(headers={"crit": ["exp"], "exp": 1}),
    "another issuer": lambda: token_of(iss="https://id.example.com"),
    "issuer with more": lambda: token_of(iss=ISSUER + "/"),
    "another audience": lambda: token_of(aud="grafana"),
    "no audience": lambda: token_of(aud=None),
    "expired": lambda: token_of(exp=int(time.time()) - 60),
    "not yet": lambda: token_of(nbf=int(time.time()) + 600),
    "from the future": lambda: token_of(iat=int(time.time()) + 600),
    "no end": lambda: token_of(exp=None),
    "lives for ever": lambda: token_of(exp=int(time.time()) + 10**9),
    "ends beyond numbers": lambda: raw({"alg": "RS256", "kid": "one"}, claims_of(exp=float("inf")), b""),
    "no subject": lambda: token_of(sub=None),
    "no role": lambda: token_of(realm_access={"roles": ["admin", "operator"]}),
    "roles are no list": lambda: token_of(realm_access="ml-oncall"),
    "empty parts": lambda: "..",
    "nonsense": lambda: "a.b.c",
    "not ascii": lambda: "é.é.é",
    "deep": lambda: raw({"alg": "RS256", "kid": "one"}, {"iss": 1}, b"") + ".",
    "deep header": lambda: base64.urlsafe_b64encode(b'{"alg":' + b"[" * 9000).decode() + ".e30.x",
    "long": lambda: token_of(padding="x" * 20_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_forger_tries_is_refused(oidc: Oidc, name: str) -> None:
    with pytest.raises(RefusedTokenError) as caught:
        oidc.verify(HOSTILE[name]())
    assert not caught.value.unavailable and "\n" not in str(caught.value)


def test_a_changed_claim_breaks_the_signature(oidc: Oidc) -> None:
    head, _, tail = token_of().split(".")
    other = base64.urlsafe_b64encode(json.dumps(claims_of(sub="root")).encode()).rstrip(b"=").decode()
    with pytest.raises(RefusedTokenError):
        oidc.verify(f"{head}.{other}.{tail}")


def test_keys_are_remembered_renewed_and_never_fetched_at_a_strangers_pace(provider: Provider) -> None:
    now_s = 0.0
    keys = KeyRing(settings_of(provider), clock=lambda: now_s)
    assert keys.find("one", "RS256") is not None and keys.find("one", "RS256") is not None
    for _ in range(50):
        assert keys.find("unknown", "RS256") is None
    assert len(provider.asked) == 1
    provider.keys.append(jwk(THEIRS, "two"))
    now_s = 20.0
    assert keys.find("two", "RS256") is not None and len(provider.asked) == 2
    provider.status, now_s = 503, 400.0
    assert keys.find("one", "RS256") is not None and len(provider.asked) == 3
    provider.status, now_s = 302, 500.0
    assert keys.find("one", "RS256") is not None
    assert set(provider.asked) == {"/keys"}  # no redirect was followed
    now_s = 2 * 86_400.0
    with pytest.raises(NoKeysError):
        keys.find("one", "RS256")
    provider.status, now_s = 200, now_s + 20.0
    assert keys.find("one", "RS256") is not None


def test_short_keys_and_shared_secrets_are_no_keys(provider: Provider) -> None:
    provider.keys = [
        jwk(rsa.generate_private_key(public_exponent=65537, key_size=1024), "short"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "s"},
    ]
    keys = KeyRing(settings_of(provider))
    with pytest.raises(NoKeysError):
        keys.find("short", "RS256")


def test_the_service_takes_both_kinds_of_tokens(
    service: Service, http: httpx.Client, ledger: Ledger, oidc: Oidc, as_: Callable[..., dict[str, str]]
) -> None:
    bearer = {"Authorization": f"Bearer {token_of()}"}
    assert http.get("/v1/whoami", headers=bearer).status_code == 401  # not configured
    service.oidc = oidc
    assert http.get("/v1/whoami", headers=bearer).json()["name"] == "alice@example.org"
    assert http.get("/v1/whoami", headers=as_("operator", name="bob")).json()["name"] == "bob"
    assert http.get("/v1/incidents/llm-1", headers=bearer).status_code == 200
    pause = {"scope": "job", "target": "llm", "seconds": 60, "reason": "firmware"}
    assert http.post("/v1/pauses", headers=bearer | {"Idempotency-Key": "k"}, json=pause).status_code == 201
    assert ledger.events(kinds=[kinds.PAUSE])[-1].payload["by"] == "alice@example.org"
    assert http.post("/v1/pauses", headers=bearer | {"Idempotency-Key": "l"}, json=pause | {"target": "vision"}).status_code == 403
    answer = http.get("/v1/whoami", headers={"Authorization": f"Bearer {HOSTILE['alg none']()}"})
    assert answer.status_code == 401 and "algorithm" in answer.json()["detail"]
    service.oidc = None
