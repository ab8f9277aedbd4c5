"""Writes docs/reference/ from the code: commands, configuration, the service's API. `make reference`, or python docs/tools/generate.py.

A test says when the pages are not what the code would write (tests/docs/test_reference.py).
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent / "reference"
_NOTE = "Written by `make reference` from the code; do not edit.\n"


def pages() -> dict[str, str]:
    """File name to text."""
    return {"cli.md": cli_page(), "configuration.md": configuration_page(), "api.md": api_page()}


def cli_page() -> str:
    """Every command with its example and its options."""
    import typer

    from minder.cli import VERBS, _app

    group: Any = typer.main.get_command(_app)
    parts = [
        f"# Commands\n\n{_NOTE}\nExit status: 0 done, 1 the command failed, 2 bad input or usage. Errors are one line on standard error.\n"
    ]
    for verb, short in VERBS.items():
        command = group.get_command(None, verb)
        parts.append(f"## minder {verb}\n\n{short}\n")
        inner = getattr(command, "commands", None)
        if inner:
            parts += [_command(f"minder {verb} {name}", each, "###") for name, each in inner.items()]
        else:
            parts.append(_command(f"minder {verb}", command, ""))
    return "\n".join(parts)


def _command(line: str, command: Any, heading: str) -> str:
    text = inspect.cleandoc(command.help or "")
    about, _, example = text.partition("Example:")
    parts = [f"{heading} {line}\n"] if heading else []
    parts.append(f"{' '.join(about.split())}\n")
    if example:
        parts.append(f"```console\n{' '.join(example.split())}\n```\n")
    rows = [_parameter(item) for item in command.params if item.name != "help"]
    if rows:
        parts.append("| option | | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _parameter(item: Any) -> str:
    if item.param_type_name == "argument":
        name = str(item.metavar or item.name).upper() + ("..." if item.nargs == -1 else "")
    else:
        name = ", ".join([*item.opts, *item.secondary_opts])
    default = item.default
    shown = "required" if item.required else "" if default is None or default is False or callable(default) else f"`{default}`"
    if isinstance(default, Path):
        shown = f"`{default.as_posix()}`"
    return f"| `{name}` | {shown} | {_cell(getattr(item, 'help', '') or '')} |"


def configuration_page() -> str:
    """Every key of job.toml."""
    from minder import config
    from minder.act.actuators.kubernetes.config import KubernetesConfig
    from minder.act.actuators.slurm.config import SlurmConfig
    from minder.act.policy.config import PolicyConfig
    from minder.act.policy.ladder import LadderConfig, Rung
    from minder.act.recovery.pool_size import PoolConfig
    from minder.diagnose.scoring.config import ScoringConfig
    from minder.ingest.sources.settings import JoinRule

    parts = [
        f"# Configuration\n\n{_NOTE}\n`job.toml` of `minder run` and `minder watch`. Unknown keys are errors; a relative path is "
        "relative to the file's folder.\n"
    ]
    tables = (
        ("The job", "", config.JobConfig),
        ("Machines", "[[machines]]", config.MachineConfig),
        ("A machine on the controller's own host", "[machines.local]", config.LocalHandle),
        ("Telemetry", "[telemetry]", config.TelemetryConfig),
        ("Where a series finds its machine", "[[telemetry.join]]", JoinRule),
        ("Detector", "[detector]", config.DetectorConfig),
        ("Where telemetry is scored", "[scoring]", ScoringConfig),
        ("Slurm", '[engine]` with `kind = "slurm"', SlurmConfig),
        ("Kubernetes", '[engine]` with `kind = "kubernetes"', KubernetesConfig),
        ("The controller's own metrics", "[metrics]", config.MetricsConfig),
        ("Certificates", "[tls]", config.TlsConfig),
        ("When links call a person", "[signals]", config.SignalsConfig),
        ("How many standbys a job should have", "[pool]", PoolConfig),
        ("How standbys are tested", "[standby]", config.StandbyConfig),
        ("A job that is replayed", "[replay]", config.ReplayConfig),
    )
    parts += _tables(tables)
    parts.append(
        "## Policy\n\n`[policy]`: limits of what may be done. `dry_run` is set by `--act` of the command.\n\n"
        "| key | default | meaning |\n|---|---|---|"
    )
    parts.append(
        "\n".join(f"| `{name}` | {f'`{default}`' if default else ''} | {meaning} |" for name, default, meaning in _settings(PolicyConfig))
        + "\n"
    )
    parts += _tables(
        (("The ladder", "[policy.ladder]", LadderConfig), ("A rung of a ladder of your own", "[[policy.ladder.rungs]]", Rung)), "###"
    )
    parts.append(
        "## The service\n\n`service.toml` of `minder serve --settings`. Unknown keys are errors; a relative path is relative to the file's "
        "folder; a file with a secret must be closed to others. Examples are in [service](../service.md).\n"
    )
    parts += _tables(_service_tables(), "###")
    return "\n".join(parts)


def _service_tables() -> tuple[tuple[str, str, Any], ...]:
    from serve.identity.oidc_settings import OidcSettings, SignInSettings
    from serve.notify.targets import Target
    from serve.settings_file import ServiceFile
    from serve.watching.settings import JobsSettings

    return (
        ("The file", "", ServiceFile),
        ("Receivers of notices", "[[notify]]", Target),
        ("Identity provider", "[oidc]", OidcSettings),
        ("Signing in", "[oidc.sign_in]", SignInSettings),
        ("Jobs that are registered", "[jobs]", JobsSettings),
    )


def _tables(tables: tuple[tuple[str, str, Any], ...], heading: str = "##") -> Iterator[str]:
    """A section for each model: title, name of its table, keys."""
    from serve.contract import split_meanings

    for title, table, model in tables:
        about, meanings = split_meanings(inspect.getdoc(model) or "", list(model.model_fields))
        intro = ": ".join(part for part in (f"`{table}`" if table else "", _cell(about)) if part)
        yield f"{heading} {title}\n\n{intro}\n\n| key | type | default | meaning |\n|---|---|---|---|"
        yield "\n".join(_field(name, field, meanings.get(name, "")) for name, field in model.model_fields.items()) + "\n"


def _field(name: str, field: Any, meaning: str) -> str:
    default = "required" if field.is_required() else _plain_default(field.get_default(call_default_factory=True))
    return f"| `{name}` | {_kind(inspect.formatannotation(field.annotation))} | {default} | {_cell(meaning)} |"


def _kind(annotation: str) -> str:
    """A type as TOML has it."""
    text = re.sub(
        r"\w+Config\b|\w+Settings\b|JoinRule|LocalHandle|Target|\bRung\b|dict\[.*\]",
        "table",
        re.sub(r"(minder|serve)\.(\w+\.)*", "", annotation).replace(" | None", ""),
    )
    if words := re.fullmatch(r"(tuple\[)?(?:typing\.)?Literal\[([^]]*)\](?:, \.\.\.\])?", text):
        return ("list of " if words[1] else "") + " or ".join(f'`"{word}"`' for word in re.findall(r"'([^']*)'", words[2]))
    text = text.replace("table | table", "table")
    for python, toml in (("str", "string"), ("int", "whole number"), ("float", "number"), ("bool", "true or false")):
        text = re.sub(rf"\b{python}\b", toml, text)
    return re.sub(r"tuple\[(.*), \.\.\.\]", r"list of \1s", text).replace(" | ", " or ")


def _plain_default(value: Any) -> str:
    """A value as TOML has it; nothing for what is left out."""
    if hasattr(type(value), "model_fields") or value is None or value == {}:
        return ""
    return f"`{json.dumps(value)}`"


def _settings(cls: Any) -> Iterator[tuple[str, str, str]]:
    """Fields of a dataclass with the comment that stands above them; a comment counts for all fields up to the next one."""
    comments: dict[str, str] = {}
    said: list[str] = []
    began = False  # the fields under the newest comment
    for line in inspect.getsource(cls).splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            said = [*([] if began else said), stripped.lstrip("# ")]
            began = False
        elif found := re.match(r"(\w+): .+ = ", stripped):
            comments[found[1]] = " ".join(said)
            began = True
    for item in dataclasses.fields(cls):
        yield item.name, "" if item.default is dataclasses.MISSING else json.dumps(item.default), _cell(comments.get(item.name, ""))


def api_page() -> str:
    """Every route of the service, out of its own OpenAPI document."""
    document = _openapi()
    parts = [
        f"# API\n\n{_NOTE}\nThe service's own description is at `/v1/openapi.json`; how to use it, and what roles may do, is in "
        "[service](../service.md).\n"
    ]
    parts.append("| method | path | what | answers |\n|---|---|---|---|")
    for path, methods in sorted(document["paths"].items()):
        for method, route in methods.items():
            answers = ", ".join(code for code in route["responses"] if code.startswith("2"))
            about = (route.get("description") or route.get("summary") or "").split("\n\n")[0]
            parts.append(f"| {method.upper()} | `{path}` | {_cell(about)} | {answers} |")
    parts.append("\n## Parameters\n")
    for path, methods in sorted(document["paths"].items()):
        for method, route in methods.items():
            rows = [_query(item) for item in route.get("parameters", ())]
            if rows:
                parts.append(
                    f"### {method.upper()} {path}\n\n| parameter | in | required | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
                )
    return "\n".join(parts) + "\n"


def _query(item: dict[str, Any]) -> str:
    about = item.get("description") or item.get("schema", {}).get("description", "")
    return f"| `{item['name']}` | {item['in']} | {'yes' if item.get('required') else ''} | {_cell(about)} |"


def _openapi() -> dict[str, Any]:
    from serve.app import build_app
    from serve.settings import Settings
    from serve.state import open_service

    with tempfile.TemporaryDirectory() as scratch:
        service = open_service(Settings(str(Path(scratch) / "ledger.db")))
        try:
            return dict(build_app(service).openapi())
        finally:
            service.close()


def _cell(text: str) -> str:
    """Text for a table's cell, on one line."""
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    HERE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (HERE / name).write_text(text.rstrip() + "\n", encoding="utf-8")
        print(f"docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
