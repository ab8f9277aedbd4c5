"""A small OpenID Connect provider as a process of its own: strict about what it is asked, and a liar when it is told to be.

    python identity_provider.py --client minder [--secret WORD]      prints its address

People sign in with a form (their name; no password). It takes the authorisation code flow with PKCE (S256), state and nonce only;
a code counts once, for a minute, for the same client and redirect_uri. POST /control {"lie": NAME, "rotate": true, "claims": {...}}
changes what comes next; GET /control tells what it was asked.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import html
import json
import secrets
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

REDIRECTS = "/sign-in/provider/back"


class Provider(ThreadingHTTPServer):
    """What it knows: keys, codes, and what it was told to do."""

    daemon_threads = True

    def __init__(self, client: str, secret: str | None) -> None:
        super().__init__(("127.0.0.1", 0), Answerer)
        self.issuer = f"http://127.0.0.1:{self.server_port}"
        self.client, self.secret = client, secret
        self.codes: dict[str, dict[str, Any]] = {}
        self.lie, self.claims, self.in_form = "", {}, False
        self.asked: list[str] = []
        self.out: list[str] = []
        self.serial = 0
        self.rotate("RS256")

    def rotate(self, algorithm: str) -> None:
        self.serial += 1
        self.algorithm, self.kid = algorithm, f"key-{self.serial}"
        self.key = _new_key(algorithm)

    def published(self) -> dict[str, Any]:
        kind = ECAlgorithm if self.algorithm.startswith("ES") else RSAAlgorithm
        return {"keys": [{**json.loads(kind.to_jwk(self.key.public_key())), "kid": self.kid, "use": "sig", "alg": self.algorithm}]}

    def id_token(self, code: dict[str, Any]) -> str:
        now_s = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.issuer, "aud": self.client, "sub": f"u-{code['name']}", "iat": now_s, "exp": now_s + 300, "nonce": code["nonce"],
            "email": f"{code['name']}@example.org", "roles": ["ml-oncall"],
        } | self.claims  # fmt: skip
        claims |= {
            "nonce": {"nonce": "another"},
            "audience": {"aud": "grafana"},
            "two audiences": {"aud": [self.client, "grafana"]},
            "another client": {"azp": "grafana"},
            "issuer": {"iss": "https://id.example.com"},
            "expired": {"iat": now_s - 900, "exp": now_s - 600},
            "no role": {"roles": ["cook"]},
        }.get(self.lie, {})
        if self.lie == "no nonce":
            del claims["nonce"]
        if self.lie == "unsigned":
            return jwt.encode(claims, "", algorithm="none", headers={"kid": self.kid})
        key = _new_key(self.algorithm) if self.lie == "another key" else self.key
        return jwt.encode(claims, key, algorithm=self.algorithm, headers={"kid": self.kid})


def _new_key(algorithm: str) -> Any:
    return (
        ec.generate_private_key(ec.SECP256R1()) if algorithm == "ES256" else rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )


class Answerer(BaseHTTPRequestHandler):
    server: Provider
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.server.asked.append(parts.path)
        given = {name: values[0] for name, values in parse_qs(parts.query, strict_parsing=True).items()} if parts.query else {}
        if parts.path == "/.well-known/openid-configuration":
            self._discovery()
        elif parts.path == "/keys":
            self._json(200, self.server.published())
        elif parts.path == "/authorize":
            self._authorize(given)
        elif parts.path == "/sign-out":
            self._sign_out(given)
        elif parts.path == "/control":
            self._json(200, {"asked": self.server.asked, "open": len(self.server.codes), "out": self.server.out})
        else:
            self._json(404, {"error": "not_found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append(self.path)
        if self.path == "/control":
            self._control(json.loads(body))
            return
        given = {name: values[0] for name, values in parse_qs(body, strict_parsing=True).items()}
        if self.path == "/login":
            self._login(given)
        elif self.path == "/token":
            self._token(given)
        else:
            self._json(404, {"error": "not_found"})

    def _control(self, told: dict[str, Any]) -> None:
        server = self.server
        if "rotate" in told:
            server.rotate(told["rotate"])
        server.lie, server.claims, server.in_form = told.get("lie", ""), told.get("claims", {}), told.get("in_form", False)
        server.asked.clear()
        self._json(200, {})

    def _discovery(self) -> None:
        at = self.server.issuer
        if self.server.lie == "silent":
            time.sleep(60.0)
        if self.server.lie == "trickle":
            self._trickle()
            return
        if self.server.lie == "server error":
            self._json(500, {"error": "server_error"})
            return
        self._json(200, {
            "issuer": "https://id.example.com" if self.server.lie == "discovery of another" else at,
            "authorization_endpoint": f"{at}/authorize", "token_endpoint": f"{at}/token", "jwks_uri": f"{at}/keys",
            "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_post" if self.server.in_form else "client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
            **({} if self.server.lie == "no sign-out" else {"end_session_endpoint": f"{at}/sign-out?realm=ml"}),
        })  # fmt: skip

    def _trickle(self) -> None:
        """A header line that never ends."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        for _ in range(600):
            self.wfile.write(b"x")
            time.sleep(0.1)

    def _authorize(self, given: dict[str, str]) -> None:
        needed = {"response_type", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge", "code_challenge_method"}
        right = (
            needed == set(given)
            and given["response_type"] == "code"
            and given["client_id"] == self.server.client
            and "openid" in given["scope"].split()
            and urlsplit(given["redirect_uri"]).path == REDIRECTS
            and given["code_challenge_method"] == "S256"
            and len(given["code_challenge"]) == 43
            and min(len(given["state"]), len(given["nonce"])) >= 32
        )
        if not right:
            self._json(400, {"error": "invalid_request"})
            return
        hidden = "".join(f'<input type="hidden" name="{name}" value="{html.escape(value)}">' for name, value in given.items())
        form = f'<form method="post" action="/login">{hidden}<label>Name <input name="name" required></label><button>Go on</button></form>'
        self._send(200, f"<!doctype html><title>Who are you?</title><h1>Who are you?</h1>{form}".encode(), "text/html")

    def _sign_out(self, given: dict[str, str]) -> None:
        """OpenID Connect RP-Initiated Logout 1.0: for our client only, and who it is must be told."""
        key = self.server.key.public_key()
        hint = jwt.decode(given["id_token_hint"], key, [self.server.algorithm], audience=self.server.client, issuer=self.server.issuer)
        back = given["post_logout_redirect_uri"]
        if given["client_id"] != self.server.client or given["realm"] != "ml" or urlsplit(back).path != "/sign-in":
            self._json(400, {"error": "invalid_request"})
            return
        self.server.out.append(hint["sub"])
        self.send_response(302)
        self.send_header("Location", back)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _login(self, given: dict[str, str]) -> None:
        answer = {"state": given["state"], "iss": "https://id.example.com" if self.server.lie == "another iss" else self.server.issuer}
        if self.server.lie == "error":
            answer["error"] = "access_denied"
        else:
            answer["code"] = secrets.token_urlsafe(24)
            self.server.codes[answer["code"]] = given | {"until_s": time.monotonic() + 60.0}
        self.send_response(302)
        self.send_header("Location", f"{given['redirect_uri']}?{urlencode(answer)}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _token(self, given: dict[str, str]) -> None:
        server, code = self.server, self.server.codes.pop(given.get("code", ""), None)
        if not self._is_client(given):
            self._json(401, {"error": "invalid_client"})
            return
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        right = (
            code is not None
            and given.get("grant_type") == "authorization_code"
            and time.monotonic() < code["until_s"]
            and given.get("redirect_uri") == code["redirect_uri"]
            and base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == code["code_challenge"]
        )
        if not right or code is None:
            self._json(400, {"error": "invalid_grant", "error_description": "<script>alert(1)</script>"})
            return
        if server.lie == "redirect":
            self.send_response(307)
            self.send_header("Location", f"{server.issuer}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif server.lie == "html":
            self._send(200, b"<h1>Please sign in</h1>", "text/html")
        elif server.lie == "huge":
            self._send(200, b'{"id_token": "' + b"x" * 1_000_000 + b'"}', "application/json")
        else:
            token = {} if server.lie == "no token" else {"id_token": server.id_token(code)}
            self._json(200, {"access_token": secrets.token_urlsafe(16), "token_type": "Bearer", "expires_in": 300} | token)

    def _is_client(self, given: dict[str, str]) -> bool:
        """One way of authentication and not two; a client without a secret says who it is, and has PKCE."""
        basic = self.headers.get("Authorization", "")
        if self.server.secret is None:
            return not basic and given.get("client_id") == self.server.client and "client_secret" not in given
        if self.server.in_form:
            return not basic and (given.get("client_id"), given.get("client_secret")) == (self.server.client, self.server.secret)
        if not basic.startswith("Basic ") or "client_secret" in given:
            return False
        name, _, secret = base64.b64decode(basic.removeprefix("Basic ")).decode().partition(":")
        return (unquote_plus(name), unquote_plus(secret)) == (self.server.client, self.server.secret)

    def _json(self, status: int, document: dict[str, Any]) -> None:
        self._send(status, json.dumps(document).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", required=True)
    parser.add_argument("--secret")
    given = parser.parse_args()
    provider = Provider(given.client, given.secret)
    print(provider.issuer, flush=True)
    provider.serve_forever(0.05)


if __name__ == "__main__":
    sys.exit(main())
