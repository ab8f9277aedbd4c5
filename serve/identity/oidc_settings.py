"""The [oidc] table of the service's settings: whose tokens count, and what their claims are worth here."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from serve.notify.targets import demand_address

__all__ = ["OidcSettings"]

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


class OidcSettings(BaseModel):
    """Bearer tokens of an identity provider. A token that maps to no role is refused; agents and launchers have minder's own tokens.

    jwks_url or jwks_file: the provider's keys. roles: a value of roles_claim to the role here; the highest counts. jobs_claim: a list
    of job names; every job if not set. Claims may be dotted ("realm_access.roles"). longest_s: tokens that live longer are refused.
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

    @field_validator("jwks_url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        if url is not None:
            demand_address(url, "jwks_url")
        return url

    @model_validator(mode="after")
    def _is_whole(self) -> OidcSettings:
        if (self.jwks_url is None) == (self.jwks_file is None):
            raise ValueError("give either jwks_url or jwks_file")
        if not self.algorithms or not self.roles:
            raise ValueError("algorithms and roles must not be empty: nobody could come in")
        return self
