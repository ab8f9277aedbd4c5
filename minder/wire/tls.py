"""TLS between a controller and the agents and launchers that it asks: what each side is given, and what is wrong in one line."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from minder.model.errors import BadInputError, ConfigError

__all__ = ["FieldNames", "ServerTls", "client_context", "explain_tls", "server_tls"]

E = TypeVar("E", bound=BaseException)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files of an agent or launcher. client_authority: who signs the certificates of those that may call; None: a token is enough."""

    certificate: str
    key: str
    client_authority: str | None = None

    def options(self) -> dict[str, Any]:
        """For uvicorn.Config."""
        return {
            "ssl_certfile": self.certificate,
            "ssl_keyfile": self.key,
            "ssl_ca_certs": self.client_authority,
            "ssl_cert_reqs": ssl.CERT_REQUIRED if self.client_authority else ssl.CERT_NONE,
        }


def server_tls(certificate: Path | None, key: Path | None, client_authority: Path | None) -> ServerTls | None:
    """From --tls-cert, --tls-key and --tls-client-ca; None without them. Raises BadInputError for files that do not go together."""
    if certificate is None or key is None:
        if certificate is not None or key is not None:
            raise BadInputError("give both --tls-cert and --tls-key, or neither")
        if client_authority is not None:
            raise BadInputError("--tls-client-ca goes with --tls-cert and --tls-key: callers' certificates come over TLS only")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        _load_chain(context, str(certificate), str(key))
    except OSError as error:  # also ssl.SSLError
        raise BadInputError(f"--tls-cert {certificate} with --tls-key {key} cannot be used: {_short(error)}") from error
    try:
        if client_authority is not None:
            context.load_verify_locations(cafile=client_authority)
    except OSError as error:
        raise BadInputError(f"--tls-client-ca {client_authority} cannot be used: {_short(error)}") from error
    return ServerTls(str(certificate), str(key), None if client_authority is None else str(client_authority))


class FieldNames(NamedTuple):
    """What the fields that name the three files are called where a person wrote them."""

    authority: str
    certificate: str
    key: str


_JOB_FILE = FieldNames("tls.ca", "tls.cert", "tls.key")


def client_context(authority: str | None, certificate: str | None, key: str | None, names: FieldNames = _JOB_FILE) -> ssl.SSLContext:
    """What a controller calls https:// addresses with: PEM files of who signs the machines' certificates (None: the system's
    authorities) and of its own certificate. names: of these in messages. Raises ConfigError."""
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise ConfigError(f"{names.authority} {authority} cannot be used: {_short(error)}") from error
    if certificate is not None and key is not None:
        try:
            _load_chain(context, certificate, key)
        except OSError as error:
            raise ConfigError(f"{names.certificate} {certificate} with {names.key} {key} cannot be used: {_short(error)}") from error
    return context


def explain_tls(error: BaseException, url: str) -> tuple[str, BaseException] | None:
    """What a failed call says of TLS, and the error that does; None where it is not about TLS."""
    found = _in_chain(error, ssl.SSLError)
    if isinstance(found, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {found.verify_message}; tls.ca in job.toml names who signs machines' certificates", found
    if found is not None:
        reason = str(found.reason or found)
        if "WRONG_VERSION" in reason or "RECORD_LAYER" in reason:
            return "it does not speak TLS: write http:// in job.toml, or start it with --tls-cert and --tls-key", found
        return f"TLS failed: {reason}", found
    hung_up = "without sending a response" in str(error) or _in_chain(error, ConnectionResetError) is not None
    if not hung_up:
        return None
    if url.startswith("http://"):
        return "it hung up without an answer: if it was started with --tls-cert, write https:// in job.toml", error
    why = "if it was started with --tls-client-ca, tls.cert and tls.key in job.toml must be signed by that authority"
    return f"it hung up without an answer: {why}", error


def _in_chain(error: BaseException | None, kind: type[E]) -> E | None:
    """The first of this kind among an error and what it was raised from."""
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, kind):
            return error
        error, seen = error.__cause__ or error.__context__, seen + 1
    return None


def _load_chain(context: ssl.SSLContext, certificate: str, key: str) -> None:
    context.load_cert_chain(certificate, key, password="")  # a key with a password is refused, not asked about at a terminal


def _short(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)
