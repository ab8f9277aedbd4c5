"""`minder agent`: observe this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minder.cli.options import MetricsTokenFile, TlsCertificate, TlsClientCa, TlsKey
from minder.cli.step_pattern import OldStepPattern, StepPattern, chosen_pattern

__all__ = ["command"]


def command(
    listen: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1:9401",
    token_file: Annotated[
        Path | None, typer.Option(help="File with this machine's token, read again when it changes; or set MINDER_TOKEN.")
    ] = None,
    metrics_token_file: MetricsTokenFile = None,
    machine: Annotated[str | None, typer.Option(help="This machine's name; the host name if not given.")] = None,
    run_dir: Annotated[Path | None, typer.Option(help="Where this machine's launcher keeps its registry.")] = None,
    interval: Annotated[float, typer.Option(min=0.1, max=60.0, help="Seconds between samples.")] = 1.0,
    cgroup: Annotated[str | None, typer.Option(help="The machine is this cgroup, not the whole host.")] = None,
    processes_of: Annotated[
        str | None, typer.Option(help="The machine is this pid's process tree, or `registry`: the launchers' trees.")
    ] = None,
    pids: Annotated[str | None, typer.Option(help="Training processes, comma separated, of a job that no launcher of ours runs.")] = None,
    discover: Annotated[
        bool | None,
        typer.Option(help="Find training processes by RANK and WORLD_SIZE. [default: on a whole host without its own --run-dir]"),
    ] = None,
    interface: Annotated[list[str] | None, typer.Option(help="Only this network interface; repeat for more.")] = None,
    log: Annotated[
        list[Path] | None, typer.Option(help="Follow this log for steps of a job that calls nothing of ours; repeat for more.")
    ] = None,
    step_pattern: StepPattern = None,
    log_pattern: OldStepPattern = None,
    nccl_inspector: Annotated[
        Path | None,
        typer.Option(envvar="MINDER_AGENT_NCCL_INSPECTOR", help="Follow the files that the NCCL Inspector writes into this folder."),
    ] = None,
    hide: Annotated[str | None, typer.Option(envvar="MINDER_AGENT_HIDE", help="Metrics not to export, comma separated.")] = None,
    gpu: Annotated[str, typer.Option(help="auto, on or off.")] = "auto",
    retest: Annotated[
        str | None, typer.Option(envvar="MINDER_AGENT_RETEST", help="Command that tests this machine: `minder machine retest` runs it.")
    ] = None,
    retest_probes: Annotated[
        str | None,
        typer.Option(envvar="MINDER_AGENT_RETEST_PROBES", help="Probes that test this machine in place of --retest, comma separated."),
    ] = None,
    probe_folder: Annotated[
        Path | None,
        typer.Option(envvar="MINDER_AGENT_PROBE_FOLDER", help="Where the disk probe writes. [default: the temporary folder]"),
    ] = None,
    kernel_log: Annotated[
        Path, typer.Option(envvar="MINDER_AGENT_KERNEL_LOG", help="The kernel's log, such as the host's in a container.")
    ] = Path("/dev/kmsg"),
    retest_deadline: Annotated[float, typer.Option(min=1.0, max=3600.0, help="Seconds that the test may take.")] = 600.0,
    tls_cert: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
) -> None:
    """Export this machine's metrics and signals, and capture evidence on request.

    Example: minder agent --listen 127.0.0.1:9401
    """
    import dataclasses

    from minder.edge.agent.options import DEFAULT_LISTEN, AgentOptions, parse_names, parse_processes_of, parse_retest_probes
    from minder.edge.agent.retest import split_command
    from minder.edge.agent.serve import serve
    from minder.model.errors import BadInputError
    from minder.wire.addresses import parse_address
    from minder.wire.own_token import metrics_token, own_token
    from minder.wire.tls import server_tls

    if gpu not in ("auto", "on", "off"):
        raise BadInputError(f"--gpu is {gpu!r}: auto, on or off")
    given = parse_names(pids)
    if not all(pid.isdigit() for pid in given):
        raise BadInputError(f"--pids {pids!r}: process numbers, comma separated")
    host, port = parse_address(listen, "--listen", DEFAULT_LISTEN)
    options = AgentOptions(
        host=host,
        port=port,
        metrics_token=metrics_token(metrics_token_file),
        interval_s=interval,
        cgroup=cgroup,
        processes_of=parse_processes_of(processes_of),
        pids=tuple(map(int, given)),
        discover=discover,
        interfaces=tuple(interface or ()),
        hidden=frozenset(parse_names(hide)),
        gpu=gpu,
        logs=tuple(log or ()),
        step_pattern=chosen_pattern(step_pattern, log_pattern),
        nccl_inspector=nccl_inspector,
        retest=(command := split_command(retest)),
        retest_probes=parse_retest_probes(retest_probes, command),
        probe_folder=probe_folder,
        kernel_log=kernel_log,
        retest_deadline_s=retest_deadline,
        tls=server_tls(tls_cert, tls_key, tls_client_ca),
    )
    if machine is not None:
        options = dataclasses.replace(options, machine=machine)
    if run_dir is not None:
        options = dataclasses.replace(options, run_dir=run_dir)
    options = dataclasses.replace(options, token=own_token(token_file, options.machine))
    serve(options)
