"""First contact with a Prometheus: what it says, what follows from it, and the draft of a job.toml."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from minder.doctor.draft import Draft, Reached, draft_name
from minder.doctor.finding import Finding
from minder.doctor.foreign import look_at_proposal
from minder.doctor.proposal import Proposal, propose
from minder.doctor.series import Server
from minder.ingest.sources.access import split_user
from minder.ingest.sources.settings import parse_settings
from minder.model.errors import SourceError

__all__ = ["Contact", "look_at_prometheus"]


@dataclass(frozen=True, slots=True)
class Contact:
    """findings: most important first. table: what could name the machines. written: files. next: commands, in order."""

    findings: list[Finding]
    table: list[dict[str, Any]] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)
    proposal: Proposal | None = None


def look_at_prometheus(keys: Mapping[str, Any], draft: Path | None = None, name: str | None = None, expected: int | None = None) -> Contact:
    """keys: as [telemetry] would say them. draft: where to write a job.toml, name: of the job. expected: machines that the job has.

    Raises BadInputError for what cannot be used, and for files that are there already.
    """
    settings = parse_settings(keys)
    access = settings.access()
    server = Server(settings.address.rstrip("/"), settings.selector, access)
    try:
        proposal = propose(server, time.time())
    except SourceError as error:
        return Contact([Finding("prometheus", "missing", error.seen, error.mend)])
    findings = look_at_proposal(server.url, proposal, expected)
    table = [asdict(row) for row in proposal.identity.table] if proposal.identity is not None else []
    if draft is None or proposal.identity is None or not proposal.used:
        return Contact(findings, table, proposal=proposal)
    _, user, password = split_user(str(keys.get("url", "")))  # what stood in the address is written into a file of its own
    reached = Reached(
        settings.username or user,
        password if settings.password_file is None else "",
        settings.password_file,
        settings.bearer_token_file,
        settings.ca_file,
        settings.cert_file,
        settings.key_file,
        settings.tenant,
        settings.headers,
    )
    made = Draft(draft, proposal, server, name or draft_name(draft), reached)
    written = [str(file) for file in made.write()]
    following = [f"minder doctor --config {draft}", f"minder watch --job {draft}", f"curl -s http://127.0.0.1:{made.port}/metrics"]
    return Contact(findings, table, written, following, proposal)
