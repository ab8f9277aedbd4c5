"""`minder launch`: supervise this machine's workers of one job."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from minder.cli.options import MachineTokenFile, MetricsTokenFile, TlsCertificate, TlsClientCa, TlsKey
from minder.cli.step_pattern import StepPattern, chosen_pattern
from minder.model.errors import BadInputError, MissingExtraError
from minder.model.log import say

__all__ = ["command"]


def command(
    script: Annotated[list[str], typer.Argument(help="The training script and its arguments, after --.", metavar="-- SCRIPT [ARGS]")],
    job: Annotated[str, typer.Option(help="Name of the job.")],
    machine: Annotated[str, typer.Option(help="Name of this machine, as the controller knows it.")],
    listen: Annotated[str, typer.Option(help="ADDRESS:PORT for the controller's calls.")],
    slots: Annotated[int, typer.Option(help="Worker processes on this machine.")] = 1,
    token_file: MachineTokenFile = None,
    metrics_token_file: MetricsTokenFile = None,
    run_dir: Annotated[Path | None, typer.Option(help="Where agent and launcher of this machine meet (default: as the agent).")] = None,
    log_dir: Annotated[Path | None, typer.Option(help="Worker logs (default: RUN_DIR/logs).")] = None,
    barrier: Annotated[str, typer.Option(help="Who waits for the rank: `bootstrap`, or the `script` by minder.run(main).")] = "bootstrap",
    warm_spares: Annotated[bool, typer.Option("--warm-spares", help="Keep a second process per slot waiting at the barrier.")] = False,
    start_device: Annotated[
        bool, typer.Option("--start-device", help="Waiting processes have initialised their GPU, the one with their slot's number.")
    ] = False,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the workers; may be repeated.")] = None,
    allow_env: Annotated[
        list[str] | None, typer.Option(help="Variable, or pattern such as HF_*, that the controller may set too; may be repeated.")
    ] = None,
    cgroup: Annotated[str | None, typer.Option(help="Existing cgroup that the workers join.")] = None,
    grace: Annotated[
        float, typer.Option(min=0.0, max=3600.0, help="Seconds that workers have to save and end when this launcher is stopped.")
    ] = 10.0,
    probe_folder: Annotated[Path | None, typer.Option(help="Where the disk probe writes. [default: the temporary folder]")] = None,
    step_pattern: StepPattern = None,
    cache_bytes: Annotated[
        str, typer.Option(help='Keep checkpoints of Checkpointer("memory") in so much memory of this machine, such as 64G.')
    ] = "",
    cache_folder: Annotated[Path | None, typer.Option(help="Where they lie (default: /dev/shm/minder-UID/JOB/MACHINE).")] = None,
    cache_listen: Annotated[str, typer.Option(help="ADDRESS:PORT for other machines' caches (default: a free port of --listen).")] = "",
    allow_updates: Annotated[
        Path | None, typer.Option(help="Take updates of the job's code from its controller, and keep them in this folder. [default: none]")
    ] = None,
    tls_cert: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
) -> None:
    """Start this machine's workers of a job, let them wait at the barrier, and do what the controller asks.

    Example: minder launch --job demo --machine m1 --listen 127.0.0.1:7710 --slots 2 -- train.py --steps 100
    """
    from minder.edge.launcher.settings import LaunchSettings, check_settings, parse_environment
    from minder.edge.worker.pulse import default_run_dir
    from minder.wire.addresses import parse_address
    from minder.wire.own_token import metrics_token
    from minder.wire.tls import server_tls

    try:
        MissingExtraError.demand("torch", "torch")
    except MissingExtraError as missing:  # not every script needs it: its own error stands in its log, and comes later
        say(f"minder launch: {missing}, if the script needs it")
    if barrier not in ("script", "bootstrap"):
        raise BadInputError(f"--barrier {barrier!r}: script or bootstrap")
    host, port = parse_address(listen, "--listen", "127.0.0.1:7710")
    folder = run_dir if run_dir is not None else default_run_dir()
    settings = LaunchSettings(
        job=job,
        machine=machine,
        host=host,
        port=port,
        slots=slots,
        command=tuple(script),
        run_dir=folder.absolute(),
        log_dir=(log_dir if log_dir is not None else folder / "logs").absolute(),
        barrier=cast(Literal["script", "bootstrap"], barrier),
        warm_spares=warm_spares,
        start_device=start_device,
        env=parse_environment(env or []),
        allow_env=tuple(allow_env or ()),
        metrics_token=metrics_token(metrics_token_file),
        cgroup=cgroup,
        grace_s=grace,
        probe_folder=None if probe_folder is None else probe_folder.absolute(),
        step_pattern=chosen_pattern(step_pattern, None),
        cache_bytes=cache_bytes,
        cache_folder=None if cache_folder is None else cache_folder.absolute(),
        cache_listen=cache_listen,
        allow_updates=None if allow_updates is None else allow_updates.absolute(),
        tls=server_tls(tls_cert, tls_key, tls_client_ca),
    )
    settings = dataclasses.replace(settings, token=check_settings(settings, token_file))
    from minder.edge.launcher.serve import serve

    serve(settings)
