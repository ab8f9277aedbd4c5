"""The [oidc] table of the service's settings: whose tokens count, and what their claims are worth here."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from serve.notify.targets import demand_address, read_secret

__all__ = ["OidcSettings", "SignInSettings"]

_LONGEST_SESSION_S = 12 * 3600.0

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


class SignInSettings(BaseModel):
    """People sign in to the pages with the provider. client_id: whom the provider knows us as, and whom its ID tokens
    are for. client_secret_file: a file with the secret; without one we are a public client. scopes: what is asked for; "openid" must be
    one of them. label: what the provider is called on the sign-in page.
    session_s: when they have to sign in again; until then their roles count as they were. sign_out_there: who signs out here is
    sent to the provider to sign out there too (OpenID Connect RP-Initiated Logout 1.0)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    client_id: str = Field(min_length=1, max_length=255)
    client_secret_file: str | None = None
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    label: str = Field(default="the identity provider", min_length=1, max_length=60)
    session_s: float = Field(default=8 * 3600.0, ge=60, le=_LONGEST_SESSION_S)
    sign_out_there: bool = False

    @field_validator("scopes")
    @classmethod
    def _are_scopes(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        whole = all(word and word.isascii() and word.isprintable() and not set(word) & set(' "\\') for word in scopes)
        if "openid" not in scopes or not whole:
            raise ValueError('scopes are words, and "openid" must be one of them')
        return scopes

    def secret(self) -> str | None:
        """Read anew each time: a file may be replaced. Raises ConfigError."""
        return None if self.client_secret_file is None else read_secret("client_secret_file", self.client_secret_file)


class OidcSettings(BaseModel):
    """Bearer tokens of an identity provider. A token that maps to no role is refused; agents and launchers have minder's own tokens.

    Claims may be dotted ("realm_access.roles"). issuer: whose tokens, exactly as they say it. audience: whom a bearer token must be for.
    jwks_url, jwks_file: the provider's keys, one of the two; if neither is given, its discovery document says where they are.
    ca_file: the provider's authority (PEM). algorithms: of signatures; never a shared secret, never none. roles_claim: where the token
    says what its holder is. roles: a value of that claim to the role here (viewer, operator, admin); the highest counts.
    jobs_claim: where a list of job names stands; every job if not set. name_claim: what stands in the ledger. leeway_s: by which clocks
    may differ. longest_s: tokens that live longer are refused. cache_s: how long the provider's keys are kept. timeout_s: how long the
    provider may take for one answer. discovery_url: where it is not below the issuer. sign_in: people may sign in to the pages, below.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: str = Field(min_length=1, max_length=500)
    audience: str = Field(min_length=1, max_length=500)
    jwks_url: str | None = None
    jwks_file: str | None = None
    ca_file: str | None = None
    algorithms: tuple[Algorithm, ...] = ("RS256", "ES256")
    roles_claim: str = "roles"
    roles: dict[str, Literal["viewer", "operator", "admin"]]
    jobs_claim: str | None = None
    name_claim: str = "sub"
    leeway_s: float = Field(default=30.0, ge=0, le=300)
    longest_s: float = Field(default=86_400.0, gt=0, le=7 * 86_400)
    cache_s: float = Field(default=300.0, ge=10, le=86_400)
    timeout_s: float = Field(default=5.0, gt=0, le=30)
    discovery_url: str | None = None
    sign_in: SignInSettings | None = None

    @property
    def discovery_address(self) -> str:
        """Where the provider says of itself what it offers (OpenID Connect Discovery 1.0)."""
        return self.discovery_url or self.issuer.rstrip("/") + "/.well-known/openid-configuration"

    @property
    def terms(self) -> str:
        """A digest of what decides who may come in: a session that began under other terms is over."""
        fields = self.model_dump(mode="json", include={"issuer", "algorithms", "roles_claim", "roles", "jobs_claim", "name_claim"})
        client = None if self.sign_in is None else self.sign_in.client_id
        return hashlib.sha256(json.dumps([fields, client], sort_keys=True).encode()).hexdigest()

    @field_validator("jwks_url", "discovery_url")
    @classmethod
    def _is_address(cls, url: str | None, info: ValidationInfo) -> str | None:
        if url is not None:
            demand_address(url, str(info.field_name))
        return url

    @model_validator(mode="after")
    def _is_whole(self) -> OidcSettings:
        if self.jwks_url is not None and self.jwks_file is not None:
            raise ValueError("give either jwks_url or jwks_file")
        if self.sign_in is not None or (self.jwks_url is None and self.jwks_file is None):
            demand_address(self.discovery_address, "without jwks_url or jwks_file, or with sign_in, issuer")
        if not self.algorithms or not self.roles:
            raise ValueError("algorithms and roles must not be empty: no token would be taken")
        return self
