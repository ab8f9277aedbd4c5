"""OpenID Connect bearer tokens: a signature by the provider's key, for us, in time, with a role. Anything else is refused."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import jwt

from minder.model.clock import format_time
from minder.record.api.access import Caller
from serve.identity.discovery import Discovery
from serve.identity.fetch import Fetcher
from serve.identity.keys import KeyRing, NoKeysError
from serve.identity.oidc_settings import OidcSettings

__all__ = ["Oidc", "RefusedTokenError", "looks_foreign"]

_MOST_LETTERS = 16 * 1024
_LADDER = ("viewer", "operator", "admin")
_TYPES = (None, "JWT", "at+jwt", "application/at+jwt")


class RefusedTokenError(Exception):
    """Why, in words that help the caller and give nothing else away. unavailable: it could not be decided."""

    def __init__(self, why: str, *, unavailable: bool = False) -> None:
        super().__init__(why)
        self.unavailable = unavailable


def looks_foreign(token: str) -> bool:
    """Three parts: minder's own tokens have no dots."""
    return token.count(".") == 2


class Oidc:
    """Verifies tokens of one provider."""

    def __init__(self, settings: OidcSettings, keys: KeyRing | None = None) -> None:
        """Raises ConfigError for files that cannot be used."""
        self._settings = settings
        self.discovery = Discovery(settings, Fetcher(settings))
        self._keys = keys or KeyRing(settings, discovery=self.discovery)

    @property
    def settings(self) -> OidcSettings:
        return self._settings

    def verify(self, token: str) -> Caller:
        """Whom a bearer token speaks for. Raises RefusedTokenError."""
        return self._caller(self._claims(token, self._settings.audience))

    def verify_id_token(self, token: str, client_id: str, nonce: str) -> Caller:
        """Who signed in, of an ID token that came from the provider itself. Raises RefusedTokenError."""
        claims = self._claims(token, client_id, at_once=True)
        answered = claims.get("nonce")
        if not isinstance(answered, str) or not hmac.compare_digest(answered.encode("utf-8", "replace"), nonce.encode()):
            raise RefusedTokenError("the token answers another sign-in (nonce)")
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if several else client_id) != client_id:
            raise RefusedTokenError("the token was made for another client (azp)")
        return self._caller(claims)

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        role = self._role(claims)
        if role is None:
            raise RefusedTokenError(f"the token has no role here: its {self._settings.roles_claim} must hold one that [oidc.roles] names")
        subject = f"{claims['iss']} {claims['sub']}"
        return Caller(
            token=f"oidc:{hashlib.sha256(subject.encode()).hexdigest()[:24]}",
            name=_plain(_at(claims, self._settings.name_claim) or claims["sub"]),
            role=role,
            jobs=self._jobs(claims),
            expires=format_time(float(claims["exp"])),
            issuer=str(claims["iss"]),
            subject=_plain(claims["sub"]),
        )

    def _claims(self, token: str, audience: str, *, at_once: bool = False) -> Mapping[str, Any]:
        wanted = self._settings
        try:
            if len(token) > _MOST_LETTERS or not token.isascii():
                raise RefusedTokenError("the token is too long, or none")
            header = jwt.get_unverified_header(token)
            algorithm, kid = header.get("alg"), header.get("kid")
            if algorithm not in wanted.algorithms:
                raise RefusedTokenError(f"the token is signed with an algorithm that is none of {', '.join(wanted.algorithms)}")
            if header.get("typ") not in _TYPES or "crit" in header or not (kid is None or (isinstance(kid, str) and len(kid) <= 255)):
                raise RefusedTokenError("the token's header holds what is not understood here")
            key = self._keys.find(kid, str(algorithm), at_once=at_once)
            if key is None:
                raise RefusedTokenError("the token is signed with a key that its issuer does not publish")
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[str(algorithm)],
                audience=audience,
                issuer=wanted.issuer,
                leeway=wanted.leeway_s,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except NoKeysError:
            raise RefusedTokenError("the identity provider does not answer: try again later", unavailable=True) from None
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise RefusedTokenError(f"the token is refused ({type(error).__name__})") from None
        if not isinstance(claims["sub"], str) or not claims["sub"].strip() or not all(map(_is_number, (claims["exp"], claims["iat"]))):
            raise RefusedTokenError("the token names no subject, or its times are no numbers (sub, exp, iat)")
        if float(claims["exp"]) - float(claims["iat"]) > wanted.longest_s:
            raise RefusedTokenError(f"the token lives longer than {wanted.longest_s:.0f} s: ask for a shorter one")
        return claims

    def _role(self, claims: Mapping[str, Any]) -> Any:
        claimed = _words(_at(claims, self._settings.roles_claim))
        roles = {self._settings.roles[word] for word in claimed if word in self._settings.roles}
        return max(roles, key=_LADDER.index, default=None)

    def _jobs(self, claims: Mapping[str, Any]) -> tuple[str, ...] | None:
        """A claim that is configured and missing covers no job: never every job."""
        return None if self._settings.jobs_claim is None else tuple(_words(_at(claims, self._settings.jobs_claim)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _at(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its name, or by the dotted way to it."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split()
    return [item for item in value if isinstance(item, str)][:1000] if isinstance(value, list) else []


def _plain(value: Any) -> str:
    """A name as it may stand in the audit trail."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value))[:255] or "?"
