"""Signing in with the identity provider: authorisation code with PKCE, state and nonce (OpenID Connect Core 1.0, RFC 7636, RFC 9207),
and out again (OpenID Connect RP-Initiated Logout 1.0).

Whatever the provider does wrong ends in one line and in no sign-in; each of its answers has a deadline.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote_plus, urlencode

from minder.model.errors import ConfigError
from minder.record.api.access import Caller
from serve.identity.discovery import Endpoints
from serve.identity.fetch import FetchError
from serve.identity.oidc import Oidc, RefusedTokenError
from serve.identity.oidc_settings import SignInSettings
from serve.identity.pending import Begun, PendingSignIns

__all__ = ["BACK", "CameBack", "CodeFlow", "SignInError", "SignedIn"]

BACK = "/sign-in/provider/back"
OUT = "/sign-in"  # where the provider sends a browser that it has signed out
_AT_ONCE = 8  # of the service's 40 threads: a provider that does not answer cannot take all of them
_WORD = re.compile(r"[a-z_]{1,40}")


class SignInError(Exception):
    """Why a person is not signed in, in one line for the page. status: 401 where it or we said no, 503 where it could not be decided."""

    def __init__(self, why: str, status: int) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True)
class CameBack:
    """What the browser brought from the provider. browser: what our cookie holds."""

    state: str
    browser: str
    code: str
    error: str
    issuer: str | None


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Who it is, the page to go on to, and the ID token that says so."""

    caller: Caller
    wanted: str
    id_token: str


class CodeFlow:
    """For any number of threads. public_url: where people reach the pages, and where the provider sends them back to."""

    def __init__(self, oidc: Oidc, sign_in: SignInSettings, public_url: str, pending: PendingSignIns | None = None) -> None:
        self.settings, self._oidc, self._client = oidc.settings, oidc, sign_in
        self.public_url = public_url.rstrip("/")
        self.pending = pending or PendingSignIns()
        self._places = threading.BoundedSemaphore(_AT_ONCE)

    @property
    def client(self) -> SignInSettings:
        return self._client

    def begin(self, wanted: str) -> tuple[str, Begun]:
        """Where to send the browser, and what to remember of it. Raises SignInError."""
        with self._asking():
            endpoints = self._oidc.discovery.endpoints()
        if endpoints.authorization is None or endpoints.token is None:
            raise SignInError("the identity provider offers no sign-in by authorisation code", 503)
        begun = self.pending.begin(wanted)
        asked = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": self.public_url + BACK,
            "scope": " ".join(self._client.scopes),
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": begun.challenge,
            "code_challenge_method": "S256",
        }
        return _with(endpoints.authorization, asked), begun

    def leave(self, id_token: str) -> str:
        """Where to send the browser to sign out at the provider as well. id_token: of the sign-in, "" if it is not known any more.
        Raises SignInError."""
        with self._asking():
            there = self._oidc.discovery.endpoints().end_session
        if there is None:
            raise SignInError("the identity provider offers no sign-out", 503)
        asked = {"client_id": self._client.client_id, "post_logout_redirect_uri": self.public_url + OUT}
        return _with(there, asked | ({"id_token_hint": id_token} if id_token else {}))

    def finish(self, came: CameBack) -> SignedIn:
        """Raises SignInError; the sign-in is over in any case."""
        begun = self.pending.take(came.state, came.browser)
        if begun is None:
            raise SignInError(f"this sign-in has grown old, or began elsewhere: begin again at {self.public_url}", 401)
        if came.issuer is not None and came.issuer != self.settings.issuer:
            raise SignInError("the answer is of another identity provider", 401)
        if came.error:
            raise SignInError(f"the identity provider said no{_of(came.error)}", 401)
        with self._asking():
            endpoints = self._oidc.discovery.endpoints()
            if came.issuer is None and endpoints.names_itself:
                raise SignInError("the answer does not say which identity provider it is of", 401)
            token = self._hand_in(endpoints, came.code, begun)
            return SignedIn(self._verify(token, begun), begun.wanted, token)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        if not self._places.acquire(blocking=False):
            raise SignInError("too many sign-ins wait for the identity provider: try again in a minute", 503)
        try:
            yield
        except FetchError as error:
            raise SignInError(f"the identity provider fails: {error}", 503) from None
        finally:
            self._places.release()

    def _hand_in(self, endpoints: Endpoints, code: str, begun: Begun) -> str:
        """The ID token for the code. Raises SignInError, FetchError."""
        client, secret = self._client.client_id, self._secret()
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.public_url + BACK,
            "code_verifier": begun.verifier,
        }
        login = None
        if secret is None or endpoints.in_form:
            fields |= {"client_id": client} | ({} if secret is None else {"client_secret": secret})
        else:
            login = (quote_plus(client), quote_plus(secret))  # RFC 6749, section 2.3.1
        status, answer = self._oidc.discovery.fetcher.post(str(endpoints.token), fields, login)
        said = answer if isinstance(answer, Mapping) else {}
        if status != 200:
            why = _of(said.get("error"))
            raise SignInError(f"the identity provider refused the code{why or f' (HTTP {status})'}", 401 if why else 503)
        token = said.get("id_token")
        if not isinstance(token, str):
            raise SignInError("the identity provider sent no ID token", 401)
        return token

    def _secret(self) -> str | None:
        try:
            return self._client.secret()
        except ConfigError:
            raise SignInError("this service cannot read its client_secret_file", 503) from None

    def _verify(self, token: str, begun: Begun) -> Caller:
        try:
            return self._oidc.verify_id_token(token, self._client.client_id, begun.nonce)
        except RefusedTokenError as error:
            raise SignInError(str(error), 503 if error.unavailable else 401) from None


def _with(address: str, query: Mapping[str, str]) -> str:
    return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"


def _of(error: object) -> str:
    """A code of OAuth's; no other text of the answer is repeated."""
    return f" ({error})" if isinstance(error, str) and _WORD.fullmatch(error) else ""
