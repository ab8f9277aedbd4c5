"""`minder run`: a training script under minder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minder.cli.step_pattern import StepPattern, chosen_pattern

if TYPE_CHECKING:
    from minder.config import JobConfig

__all__ = ["CONTEXT_SETTINGS", "command"]

CONTEXT_SETTINGS = {"allow_interspersed_args": False}


def command(
    script: Annotated[list[str] | None, typer.Argument(help="-- script.py and its arguments; not with --config.")] = None,
    config: Annotated[Path | None, typer.Option(help="job.toml: machines, standbys, addresses, tokens.")] = None,
    job: Annotated[str, typer.Option(help="Name of the job (without --config).")] = "local",
    nproc: Annotated[int, typer.Option(min=1, help="Ranks on this machine (without --config).")] = 1,
    max_restarts: Annotated[int, typer.Option(min=0, help="How often dead workers are started again (without --config).")] = 3,
    step_pattern: StepPattern = None,
    restart_hung_after: Annotated[
        float, typer.Option(min=0.0, help="Seconds after which a job that hangs is started again; 0: never (without --config).")
    ] = 300.0,
    in_place: Annotated[bool, typer.Option(help="The script calls minder.run(main): restart inside its processes.")] = False,
    act: Annotated[bool, typer.Option("--act", help="Evict machines for real; without it evictions are a dry run.")] = False,
    engine: Annotated[
        str | None,
        typer.Option(help="Where telemetry is scored: process, or ray (one actor). [default: scoring.engine in job.toml]"),
    ] = None,
    ray_address: Annotated[str | None, typer.Option(help="With --engine ray: the Ray head, like 10.0.0.7:6379.")] = None,
) -> None:
    """Start (or, after the controller was killed, take up again) a job, watch it, restart it, replace its bad machines.

    Restarting the job's own dead workers follows max_restarts also without --act. Without --config everything runs on this
    machine and ends with this command, Ctrl-C included; the ranks' output comes here.

    Example: minder run --nproc 2 -- train.py --steps 100
    """
    from minder.model.errors import BadInputError

    if (config is None) == (not script):
        raise BadInputError("give either --config job.toml or -- script.py with its arguments")
    pattern = chosen_pattern(step_pattern, None)
    if config is not None:
        from minder.app.engine import place_machines
        from minder.config import load_config
        from minder.model.private import private_files

        loaded = load_config(config)
        if pattern is not None:
            loaded = loaded.model_copy(update={"step_pattern": pattern})
        with private_files():  # the job's own programs are not started here
            raise typer.Exit(_run_configured(place_machines(loaded).scored_by(engine, ray_address), act))
    if engine is not None or ray_address is not None:
        raise BadInputError("--engine and --ray-address go with --config: without it everything runs on this machine")
    from minder.app.solo import SoloMachine, run_here, script_words

    words = script_words(script or [])
    policy = {"max_restarts": max_restarts, "restart_hung_after_s": restart_hung_after}
    machine = SoloMachine(job, words, ranks=nproc, in_place=in_place, policy=policy)
    machine.step_pattern = pattern
    raise typer.Exit(run_here(machine))


def _run_configured(config: JobConfig, act: bool) -> int:
    """Run the controller until the job ends. SIGTERM and Ctrl-C end the controller only: the job goes on, and a controller
    that is started again with the same state finds it."""
    from minder.model.errors import LeaseLostError

    stop = _Stop()
    over = _runs_over(config)
    while True:
        try:
            phase = _lead(config, act, stop, over)
            break
        except LeaseLostError as error:
            _say(f"{error}; waiting to lead again")
    if phase is None:
        return 0
    if phase == "finished":
        _say(f"job {config.name} is finished")
        return 0
    if stop.stopping.is_set():
        _say(f"controller of {config.name} stopped; the job runs on and the same command takes it up again")
        return 0
    _say(f"job {config.name} failed: see `minder incidents list --job {config.name}`")
    return 1


class _Stop:
    """SIGTERM and Ctrl-C, also while this controller waits behind another."""

    def __init__(self) -> None:
        import signal
        import threading

        self.stopping = threading.Event()
        self.wake = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, number: int, frame: object) -> None:
        import logging
        import signal

        from minder.model.log import event

        event(logging.getLogger("minder.controller"), logging.INFO, "signal received", signal=signal.Signals(number).name)
        self.stopping.set()
        self.wake.set()


def _location(config: JobConfig) -> str:
    from minder.app.build import state_dir_of
    from minder.model.private import make_private
    from minder.record.incidents import find_ledger

    make_private(state_dir_of(config))
    return find_ledger(None, state_dir_of(config))


def _runs_over(config: JobConfig) -> int:
    """How many runs of this job were over when this command began."""
    from minder.act.controller.state import ended_runs
    from minder.record.incidents import Ledger

    with Ledger(_location(config)) as ledger:
        return len(ended_runs(ledger, config.name))


def _lead(config: JobConfig, act: bool, stop: _Stop, over: int) -> str | None:
    """Wait to lead the job, then run its controller; the phase it ended in, also if that was while this one waited; None if it never
    led. Raises LeaseLostError."""
    from minder.act.controller.lease import Leadership, LeaseGauges, wait_to_lead
    from minder.act.controller.state import ended_runs
    from minder.app.build import build, open_page
    from minder.record.incidents import Ledger

    location = _location(config)
    leadership = Leadership(location, config.name)
    shows = (LeaseGauges(leadership, "run"),)
    try:
        lease = wait_to_lead(leadership, stop.stopping, _say, open_page(config, shows))
        if lease is None:
            return None
        ledger = Ledger(location)
        ledger.fence(lease)
        leadership.on_beat = ledger.note_beat
        ended = ended_runs(ledger, config.name)
        if len(ended) > over:  # the job came to its end under the controller before: to begin it again is not ours
            ledger.close()
            return ended[-1]
        app = build(config, act=act, ledger=ledger, shows=shows)
        app.controller.on_say = _say
        evictions = "evictions are carried out" if act else "evictions are only written down (no --act)"
        _say(f"leads {config.name}: {len(app.fleet.machines)} machines, {evictions}")
        stop.wake = app.wake
        try:
            app.begin()
            return app.run(stop.stopping)
        finally:
            app.close()
    finally:
        leadership.close()


def _say(message: str) -> None:
    from minder.model.log import say

    say(f"minder: {message}")
