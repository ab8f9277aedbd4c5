"""The command line: verbs and nothing else. Each verb's module is imported only when it is called.

Exit status: 0 done, 1 the command failed, 2 bad input or usage; errors are one line on standard error.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from minder.cli.extras import demand_for, missing_extra
from minder.model.errors import MinderError
from minder.model.log import FORMATS, LEVELS, crashed, remove_logging, say, set_up_logging
from minder.model.private import private_files

__all__ = ["VERBS", "main"]

VERBS = {
    "demo": "Run the whole loop on this machine: a training job, a fault, an eviction, a resumed job.",
    "run": "Run a training script under minder: watched, restarted, its bad machines replaced.",
    "watch": "Watch a job that runs already: verdicts, no actions.",
    "replay": "Feed recordings to the online pipeline and print what it would have concluded.",
    "evaluate": "Labelled recordings: how often, how soon and how surely the faulty machine is named.",
    "stacks": "Who holds a hung job up, from stack dumps of its processes.",
    "collectives": "Which rank holds a job up in its collectives, from Flight Recorder dumps.",
    "whatif": "What slows a job's traced steps down: a worker, stages, sequences, communication.",
    "simulate": "Write telemetry of a cluster that does not exist, with the truth beside it.",
    "train": "Fit a detector, evaluate it on held-back data, and register the model.",
    "promote": "Make a registered model the champion, if it is better.",
    "incidents": "What happened: list incidents, show one, what they cost.",
    "report": "The reliability of a period as one HTML file that opens offline.",
    "plan": "What the next job needs: standbys, machines close together, and the ETTR that it may expect.",
    "machine": "Machines that were evicted: list, return, and whether it was right.",
    "decision": "Evictions that wait for an operator: list, approve, reject.",
    "policy": "The ladder: what is done about which trouble, what another one would have done, and which rules may evict.",
    "job": "Jobs that a service watches: register, list, end.",
    "pause": "Stop actions (never alarms) for a while.",
    "unpause": "Let minder act again.",
    "maintenance": "Planned windows in which minder does not act: add, list, end.",
    "serve": "The service: an HTTP API on the ledger, and scoring of uploads.",
    "token": "Who may call the service: create, list and revoke tokens. And the tokens of machines.",
    "doctor": "What is missing for minder to work here, and a first job.toml out of any Prometheus.",
    "agent": "Observe this machine: metrics, signals, evidence on request.",
    "launch": "Supervise one machine's training processes for one job.",
    "cache": "Keep the checkpoints of one machine's ranks in its memory.",
    "lab": "The local lab: check what works here, clean up.",
}

# What a verb logs by default: those that run for weeks under a supervisor log what they do, those that a person looks at
# have their own lines for that. Verbs that are none of these have no log: their warnings are bare lines.
LOG_LEVELS = {"agent": "info", "launch": "info", "cache": "info", "serve": "info", "run": "warning", "watch": "warning", "demo": "warning"}
_LEVEL_HELP = f"{' | '.join(LEVELS)}: how much is logged (docs/logging.md). [default: $MINDER_LOG_LEVEL, else by verb]"
_FORMAT_HELP = f"{' | '.join(FORMATS)}: how the log is written. [default: $MINDER_LOG_FORMAT, else text]"


class _LazyGroup(TyperGroup):
    """Knows its verbs by name; imports `minder.cli.<verb>` when one is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        home = "pause" if cmd_name == "unpause" else cmd_name
        module = importlib.import_module(f"minder.cli.{home}")
        if hasattr(module, "app") and cmd_name != "unpause":
            module.app._add_completion = False
            module.app.rich_markup_mode = None  # as written: as markup, [engine] would vanish
            found = typer.main.get_command(module.app)
        else:
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            settings = getattr(module, "CONTEXT_SETTINGS", None)
            single.command(context_settings=settings)(module.unpause if cmd_name == "unpause" else module.command)
            found = typer.main.get_command(single)
        if cmd_name in LOG_LEVELS:
            found.params += _log_options()
        found.name = cmd_name
        found.short_help = VERBS[cmd_name]
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """As click's; a verb for which a library is missing is refused before any of it runs."""
        from minder.cli.remote import is_served

        name, found, rest = super().resolve_command(ctx, args)
        if name is not None and found is not None:
            demand_for(name, rest, served=is_served(ctx.params.get("server")))
        return name, found, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


def _log_options() -> list[Any]:
    """For verbs that log: the same options may stand before the verb, and after it."""

    def command(
        log_level: str | None = typer.Option(None, help=_LEVEL_HELP, expose_value=False, callback=_take_log_option),
        log_format: str | None = typer.Option(None, help=_FORMAT_HELP, expose_value=False, callback=_take_log_option),
    ) -> None: ...

    single = typer.Typer(add_completion=False)
    single.command()(command)
    return list(typer.main.get_command(single).params)


def _take_log_option(context: typer.Context, option: typer.CallbackParam, value: str | None) -> None:
    """Processes that the verb starts log alike: so it goes into the environment."""
    if value is not None:
        os.environ[f"MINDER_{str(option.name).upper()}"] = value
    set_up_logging(LOG_LEVELS.get(context.info_name or ""))


_WIDE = {"max_content_width": 160}  # help is as wide as the terminal up to this, so that its examples stay on one line
_app = typer.Typer(
    cls=_LazyGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    invoke_without_command=True,
    context_settings=_WIDE,
)


_START_PROGRAMS = ("agent", "launch", "run")  # whose files have the umask of the user; what is minder's own there is private by itself


@_app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version."),
    server: str | None = typer.Option(None, "--server", help="A service whose ledger to read and act on. [default: $MINDER_SERVER]"),
    token_file: str | None = typer.Option(None, "--token-file", help="Its token. [default: $MINDER_TOKEN_FILE]"),
    log_level: str | None = typer.Option(None, "--log-level", help=_LEVEL_HELP),
    log_format: str | None = typer.Option(None, "--log-format", help=_FORMAT_HELP),
    ca_file: str | None = typer.Option(None, "--ca-file", help="Its authority, if it is the site's own. [default: $MINDER_CA_FILE]"),
) -> None:
    """minder names the faulty machine of a training job, takes it away, and gets the job going again.

    Example: minder demo --fault hang
    """
    if version:
        from minder import __version__

        typer.echo(f"minder {__version__}")
        raise typer.Exit
    os.environ |= {name: text for name, text in (("MINDER_LOG_LEVEL", log_level), ("MINDER_LOG_FORMAT", log_format)) if text is not None}
    if context.invoked_subcommand not in _START_PROGRAMS:
        context.with_resource(private_files())
    set_up_logging(LOG_LEVELS.get(context.invoked_subcommand or ""))
    from minder.cli.remote import choose_server

    choose_server(server, token_file, ca_file, context.invoked_subcommand)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    command = typer.main.get_command(_app)
    before = {name: os.environ.get(name) for name in ("MINDER_LOG_LEVEL", "MINDER_LOG_FORMAT")}
    try:
        result = command.main(args=None if arguments is None else list(arguments), prog_name="minder", standalone_mode=False)
    except MinderError as error:
        return _fail(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        return _fail(str(missing), missing.exit_code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:  # noqa: BLE001
        return _usage_error(error)
    finally:
        remove_logging()
        for name, text in before.items():
            os.environ.pop(name, None) if text is None else os.environ.update({name: text})
    return int(result) if isinstance(result, int) and not isinstance(result, bool) else 0


def _usage_error(error: Exception) -> int:
    """Usage errors of the command-line library become one line; anything else is a bug and keeps its traceback (in the log, if any)."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "Exit" in kinds:
        return int(getattr(error, "exit_code", 0))
    if "Abort" in kinds:
        return 130
    if "ClickException" not in kinds:
        if crashed(error):
            return 1
        raise error
    if "NoArgsIsHelpError" in kinds:
        print(getattr(error, "message", "") or error, file=sys.stderr)
        return 2
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "minder"
    message = " ".join(str(error.format_message()).split())  # type: ignore[attr-defined]
    return _fail(f"{message}{'' if message.endswith(('.', '?')) else '.'} See `{path} --help`.", 2)


def _fail(message: str, status: int) -> int:
    say(f"minder: {message}")
    return status
