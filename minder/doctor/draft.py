"""A first job.toml that `minder watch` takes as it is, and beside it the mapping of what had to be guessed."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path

from minder.doctor.proposal import Proposal
from minder.doctor.series import Server
from minder.ingest.sources.mapping import Rule
from minder.model.errors import BadInputError

__all__ = ["draft_job", "mapping_file", "write_draft"]


def mapping_file(path: Path) -> Path:
    """Where the guessed rules of a draft are: beside it."""
    return path.with_name(f"{path.stem}.mapping.toml")


def write_draft(path: Path, proposal: Proposal, server: Server, name: str) -> list[Path]:
    """The files written. Raises BadInputError where there is nothing to draft, or a file is there already."""
    if proposal.identity is None or not proposal.used:
        raise BadInputError("there is nothing to draft: no machine's metrics were recognised (see the lines above)")
    files = [path, *([mapping_file(path)] if proposal.guessed else [])]
    for file in files:
        if file.exists():
            raise BadInputError(f"{file} is there already: give another --draft, or move it away")
    texts = [draft_job(path, proposal, server, name), *([_rules(proposal.guessed)] if proposal.guessed else [])]
    try:
        for file, text in zip(files, texts, strict=True):
            file.touch(mode=0o600 if server.headers else 0o644)  # a token is nobody else's to read
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"--draft {path}: {error.strerror}") from error
    return files


def draft_job(path: Path, proposal: Proposal, server: Server, name: str) -> str:
    """The text of the job.toml that would be written to `path`."""
    identity = proposal.identity
    assert identity is not None
    mapping = "+".join([*proposal.mappings, *([mapping_file(path).name] if proposal.guessed else [])])
    machines = "".join(f"  {{ name = {_text(machine)} }},\n" for machine in identity.machines)
    lines = [
        f"name = {_text(name)}",
        "machines = [",
        machines.rstrip("\n"),
        "]",
        "",
        "[telemetry]",
        f"url = {_text(server.url)}",
        f"interval_s = {proposal.interval_s:g}",
        f"machine_label = {_text(identity.label)}",
        f"mapping = {_text(mapping)}",
    ]
    if identity.machine_map:
        lines.append(f"machine_map = {_table(identity.machine_map)}")
    if server.selector:
        lines.append(f"selector = {_text(server.selector)}")
    if server.headers:
        lines.append(f"headers = {_table(server.headers)}")
    lines += ["", "[metrics]", f'listen = "127.0.0.1:{_free_port(9403)}"']
    return "\n".join(lines) + "\n"


def _free_port(first: int) -> int:
    """The first port from here on that nothing listens on now."""
    for port in range(first, first + 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    return first


def _rules(rules: tuple[Rule, ...]) -> str:
    head = "# Guessed from names and values by `minder doctor`: read it, and take out what is wrong.\n"
    return head + "".join("\n[[rule]]\n" + "".join(_fields(rule)) for rule in rules)


def _fields(rule: Rule) -> list[str]:
    found = []
    for key, value in rule.model_dump(exclude_defaults=True).items():
        text = _table(value) if isinstance(value, dict) else json.dumps(value, ensure_ascii=False)
        found.append(f"{key} = {text}\n")
    return found


def _table(values: Mapping[str, str]) -> str:
    return "{ " + ", ".join(f"{_text(key)} = {_text(value)}" for key, value in values.items()) + " }"


def _text(value: str) -> str:
    """A TOML basic string: JSON's escapes are TOML's."""
    return json.dumps(value, ensure_ascii=False)
