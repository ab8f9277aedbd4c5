"""`minder watch`: verdicts on a job that minder did not start."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minder.cli.step_pattern import OldStepPattern, StepPattern, chosen_pattern

if TYPE_CHECKING:
    from minder.act.controller.reporting.exporter import Collects
    from minder.app.build import App
    from minder.config import JobConfig
    from minder.record.incidents import Ledger

__all__ = ["command"]

_FORMATS = ("jsonl", "table")
_GONE_S = 10.0  # processes that come back within this time were started again


def command(
    job: Annotated[Path | None, typer.Option(help="job.toml with the machines' agents; no launchers needed.")] = None,
    pids: Annotated[str | None, typer.Option(help="Instead: training processes of this machine (or torchrun's), comma separated.")] = None,
    name: Annotated[str, typer.Option(help="Name of the job (with --pids).")] = "watched",
    log: Annotated[list[Path] | None, typer.Option(help="With --pids: a log with the script's steps; repeat for more.")] = None,
    step_pattern: StepPattern = None,
    log_pattern: OldStepPattern = None,
    output: Annotated[
        str | None,
        typer.Option("--format", help="table: for people; jsonl: one verdict per line. [default: table on a terminal, else jsonl]"),
    ] = None,
    act: Annotated[bool, typer.Option("--act", help="With an [engine] in job.toml: evict machines for real. Default: a dry run.")] = False,
    engine: Annotated[
        str | None,
        typer.Option(help="Where telemetry is scored: process, or ray (one actor). [default: scoring.engine in job.toml]"),
    ] = None,
    ray_address: Annotated[str | None, typer.Option(help="With --engine ray: the Ray head, like 10.0.0.7:6379.")] = None,
    duration: Annotated[float | None, typer.Option(min=0.0, help="Stop after so many seconds.")] = None,
    stay: Annotated[bool, typer.Option("--stay", help="Wait for the job to come back when it is over: for service managers.")] = False,
    registered: Annotated[
        str | None, typer.Option(help="Instead: a job that was registered with the service; it starts such watchers itself.")
    ] = None,
    settings: Annotated[Path | None, typer.Option(help="With --registered: the service's service.toml.")] = None,
) -> None:
    """Attach to a running job and print verdicts as they come. Without --act it takes no action, and changes nothing about the job.

    With --act and an [engine] (Slurm, Kubernetes) in job.toml, a machine that is to be evicted is drained, and the job started
    again without it.

    The job is the one that its processes call by the name in job.toml (MINDER_JOB, TORCHELASTIC_RUN_ID, SLURM_JOB_ID); if none
    does, the one with the most processes. When they are gone, on machines that answer, it says who went first and ends, unless --stay.

    Example: minder watch --job job.toml
    """
    from minder.app.engine import place_machines
    from minder.app.solo import SoloAgent
    from minder.config import load_config
    from minder.model.errors import BadInputError
    from minder.record.incidents import Ledger, find_ledger

    output = output or _usual_format()
    pattern = chosen_pattern(step_pattern, log_pattern)  # what is wrong with it is said here, not in an agent's log
    if output not in _FORMATS:
        raise BadInputError(f'--format is "{output}": use {" or ".join(_FORMATS)}')
    if (job, pids, registered).count(None) != 2:
        raise BadInputError("give either --job job.toml, or --pids with training processes of this machine, or --registered NAME")
    if registered is not None:
        if act or log or pattern:
            raise BadInputError("--act, --log and --step-pattern do not go with --registered: [jobs] in service.toml says what may be done")
        _watch_registered(registered, settings, output, duration)
        return
    with contextlib.ExitStack() as stack:
        if job is not None:
            if log or pattern:
                raise BadInputError("--log and --step-pattern go with --pids; with --job, they are the agent's: minder agent --log PATH")
            config = place_machines(load_config(job, only_watch=True), only_watch=True).scored_by(engine, ray_address)
            if act and config.engine is None:
                raise BadInputError(
                    f"--act needs an [engine] in {job}: minder did not start this job, so only its scheduler can restart it"
                )
        else:
            if act:
                raise BadInputError("--act goes with --job: processes given by --pids have no scheduler to start them again")
            numbers = _numbers(pids or "")
            config = stack.enter_context(SoloAgent(name, numbers, logs=log or [], step_pattern=pattern)).scored_by(engine, ray_address)
        from minder.app.build import build

        if job is None:
            app = build(config, act=act, ledger=Ledger(find_ledger()), away_s=_GONE_S)
        else:
            ledger, shows = stack.enter_context(_leading(config))
            config = place_machines(load_config(job, only_watch=True), only_watch=True)  # the job may have moved while we waited
            app = build(config.scored_by(engine, ray_address), act=act, ledger=ledger, shows=shows)
        restarts = act and config.engine is not None  # its engine starts it again, whenever there is room
        _watch(app, output, duration, ends_with_job=not stay and not restarts)


def _watch_registered(name: str, settings: Path | None, output: str, duration: float | None) -> None:
    """Until the registration ends, or the service that started this."""
    import os

    from minder.app.build import build
    from minder.app.engine import place_machines
    from minder.record.incidents import find_ledger
    from serve.watching.stay import Registration

    os.environ.setdefault("MINDER_LEDGER", find_ledger(None))  # a registration stands in a ledger, not in the job's state folder
    registration = Registration(os.environ["MINDER_LEDGER"], name, settings)
    registration.end_with()
    config = registration.config()
    with _leading(config) as (ledger, shows):
        config = place_machines(config, only_watch=True)
        _watch(build(config, act=registration.acts, ledger=ledger, shows=shows), output, duration, ends_with_job=False)


@contextlib.contextmanager
def _leading(config: JobConfig) -> Iterator[tuple[Ledger, tuple[Collects, ...]]]:
    """One watcher of a job speaks at a time; another waits."""
    import threading

    from minder.act.controller.lease import Leadership, LeaseGauges, wait_to_lead
    from minder.app.build import open_page, state_dir_of
    from minder.model.private import make_private
    from minder.record.incidents import Ledger, find_ledger

    make_private(state_dir_of(config))
    location = find_ledger(None, state_dir_of(config))
    leadership = Leadership(location, f"watch of {config.name}")
    shows = (LeaseGauges(leadership, "watch"),)
    try:
        lease = wait_to_lead(leadership, threading.Event(), _say, open_page(config, shows))
        ledger = Ledger(location)
        ledger.fence(lease)
        leadership.on_beat = ledger.note_beat
        yield ledger, shows
    finally:
        leadership.close()


def _numbers(text: str) -> list[int]:
    from minder.model.errors import BadInputError

    words = [word for word in text.replace(",", " ").split() if word]
    if not words or not all(word.isdigit() for word in words):
        raise BadInputError(f'--pids is "{text}": process numbers, comma separated, like 4211,4212')
    return [int(word) for word in words]


def _usual_format() -> str:
    import sys

    return "table" if sys.stdout.isatty() else "jsonl"


def _watch(app: App, output: str, duration: float | None, ends_with_job: bool) -> None:
    """Verdicts go to standard output, one per episode; all else to standard error. For people a verdict is a sentence, said once."""
    import signal
    import threading

    from minder.model.clock import format_time
    from minder.model.evidence import Verdict
    from minder.offline.evaluation.lines import Episodes, format_verdict, verdict_sentence

    episodes, stopping = Episodes(), threading.Event()

    def show(verdict: Verdict) -> None:
        is_news = episodes.is_news(verdict)
        if is_news and output == "jsonl":
            print(format_verdict(app.config.name, verdict, output), flush=True)
        if is_news and output == "table":
            print(f"{format_time(verdict.time_s)}  {verdict_sentence(verdict)}", flush=True)
        else:
            _say(verdict_sentence(verdict))

    def stop(*unused: object) -> None:
        stopping.set()
        app.wake.set()

    app.controller.on_verdict, app.controller.on_say = show, _say
    app.controller.says_verdicts = False
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    threading.Thread(target=_stop_later, args=(app, stop, duration, ends_with_job), daemon=True).start()
    try:
        app.begin()
        app.run(stopping)
    finally:
        app.close()


def _stop_later(app: App, stop: object, duration: float | None, ends_with_job: bool) -> None:
    """After `duration` seconds, or when the job is over."""
    import time

    assert callable(stop)
    started_s = time.monotonic()
    while True:
        time.sleep(0.2)
        is_over = ends_with_job and app.attachment is not None and app.attachment.over
        if is_over or (duration is not None and time.monotonic() - started_s >= duration):
            stop()
            return


def _say(message: str) -> None:
    from minder.model.log import say

    say(f"minder: {message}")
