"""`minder job`: restart a job in place, update its code, give it another standby; have a service watch jobs that minder did not start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minder.cli import job_data, job_skip, job_update
from minder.cli.options import LedgerOption, TableFormat
from minder.cli.probes import AgentToken, ProbeNames

__all__ = ["add_standby", "app", "checkpoints", "diagnose", "end", "list_jobs", "register", "restart"]

app = typer.Typer(
    help="Jobs: restart one in place, update its code, skip batches, add a standby; register, list and end those that a service watches.",
    no_args_is_help=True,
)
app.command("update")(job_update.update)
app.command("updates")(job_update.list_updates)
app.command("rollback")(job_update.rollback)
app.command("skip")(job_skip.skip)
app.command("skips")(job_skip.list_skips)
app.command("data")(job_data.data)


@app.command("register")
def register(
    job: Annotated[Path, typer.Argument(help="job.toml: its name and its machines' agents.")],
    reason: Annotated[str, typer.Option(help="Why; it stands in the audit trail.", show_default=False)] = "",
) -> None:
    """Have the service watch a job. It is in dry run unless the service's own settings say otherwise.

    Example: minder --server https://minder.example.org job register job.toml --reason "new run"
    """
    from minder.cli.remote import demand_note, open_client
    from minder.model.errors import BadInputError

    said = demand_note(reason, "--reason")
    try:
        content = job.read_bytes()
    except OSError as error:
        raise BadInputError(f"{job}: {error.strerror}") from error
    with open_client() as client:
        typer.echo(client.register_job(content, said).detail)


@app.command("list")
def list_jobs(
    format_: TableFormat = "table",
) -> None:
    """Every job that the service knows, and which it watches.

    Example: minder --server https://minder.example.org job list
    """
    import json

    from minder.cli.remote import open_client
    from minder.cli.tables import check_choice, print_table

    check_choice("--format", format_, ("table", "json"))
    with open_client() as client:
        found = list(client.jobs())
    if format_ == "json":
        typer.echo(json.dumps([item.model_dump(mode="json") for item in found], indent=1))
        return
    if not found:
        typer.echo("no job is known")
        return
    rows = [("job", "phase", "machines", "watched by", "open incidents")]
    for item in found:
        by = "the service" if item.watched else "its controller"
        rows.append((item.name, item.phase, str(len(item.machines)), by, ", ".join(item.open_incidents) or "-"))
    print_table(rows)


@app.command("end")
def end(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    reason: Annotated[str, typer.Option(help="Why; it stands in the audit trail.", show_default=False)] = "",
) -> None:
    """Watch a registered job no longer. The job is not touched, its incidents stay.

    Example: minder --server https://minder.example.org job end llm-70b --reason "the run is over"
    """
    from minder.cli.remote import demand_note, open_client

    said = demand_note(reason, "--reason")
    with open_client() as client:
        typer.echo(client.end_job(name, said).detail)


@app.command("checkpoints")
def checkpoints(
    folder: Annotated[Path, typer.Argument(help="Where the job saves.")],
    pin: Annotated[int | None, typer.Option(min=0, help="Keep this step when the job removes it: linked into FOLDER/pinned.")] = None,
    format_: TableFormat = "table",
) -> None:
    """The checkpoints in a folder, whichever program wrote them: torchtitan, DCP, Megatron, DeepSpeed, Trainer, Lightning, NVRx, minder.

    Example: minder job checkpoints /shared/llm-70b/checkpoints --pin 12000
    """
    import json
    import time

    from minder.cli.tables import check_choice, print_table
    from minder.edge.checkpoint import site
    from minder.model.errors import BadInputError, CheckpointError

    check_choice("--format", format_, ("table", "json"))
    try:
        if pin is not None:
            site.pin(folder, pin)
        found = site.site_checkpoints(folder)
    except OSError as error:
        raise BadInputError(f"{error.filename or folder}: {error.strerror}; name the folder in which the job's checkpoints lie") from error
    except CheckpointError as error:
        raise BadInputError(str(error)) from error
    if format_ == "json":
        typer.echo(json.dumps({"checkpoints": site.as_json(found, time.time())}, indent=1))
        return
    print_table(site.as_rows(found, time.time()))


@app.command("add-standby")
def add_standby(
    name: Annotated[str, typer.Argument(help="The running job's name.")],
    machine: Annotated[str, typer.Argument(help="The machine's name, as its agent and launcher were started with it.")],
    agent: Annotated[str, typer.Option(help="Where its agent listens, like http://10.0.0.9:9401.")],
    launcher: Annotated[str, typer.Option(help="Where its launcher of this job listens, like http://10.0.0.9:9402.")],
    rack: Annotated[str | None, typer.Option(help="What it shares with other machines, as in [[machines]].")] = None,
    switch: Annotated[str | None, typer.Option(help="The same.")] = None,
    block: Annotated[str | None, typer.Option(help="The part of the network in which it lies, as in [[machines]].")] = None,
    reason: Annotated[str, typer.Option(help="Why; it stands in the ledger.")] = "",
    wait: Annotated[float, typer.Option(min=0.0, help="Wait so many seconds for the controller to take it in.")] = 20.0,
    ledger: LedgerOption = None,
) -> None:
    """Give a running job one more standby, though its configuration does not name it. Its agent and launcher run already, with the job's
    tokens. With --server the service must allow their hosts (standby_hosts). Exit status 1: it was not taken in, or not within --wait.

    Example: minder job add-standby llm-70b node-0104 --agent http://10.0.0.104:9401 --launcher http://10.0.0.104:9402
    """
    from minder.cli.remote import demand_note, open_ledger
    from minder.cli.tables import operator_name
    from minder.config import check_url
    from minder.model.errors import BadInputError
    from minder.record.api.jobs import StandbyRequest
    from minder.record.incidents import Ledger
    from minder.record.incidents.joins import Join, order_join, wait_for_join

    for option, url in (("--agent", agent), ("--launcher", launcher)):
        check_url(option, url)
    wanted = Join("", machine, agent.rstrip("/"), launcher.rstrip("/"), rack, switch, block)
    with open_ledger(ledger) as opened:
        if isinstance(opened, Ledger):
            operation_id = order_join(opened, name, wanted, operator_name(), reason).operation_id
        else:
            said = demand_note(reason, "--reason")
            request = StandbyRequest(
                machine=machine, agent=wanted.agent, launcher=wanted.launcher, reason=said, rack=rack, switch=switch, block=block
            )
            operation_id = opened.client.add_standby(name, request).detail.partition(":")[0]
        found = wait_for_join(opened.events, name, operation_id, wait)
    if found.state == "asked":
        typer.echo(f"{machine} is not taken in yet: the order stands, and the controller of {name} says in its status what is missing")
        raise typer.Exit(1)
    if found.state == "failed":
        raise BadInputError(f"{machine} does not join {name}: {found.detail}")
    typer.echo(f"{machine} is {found.detail}")


@app.command("restart")
def restart(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    reason: Annotated[str, typer.Option(help="Why; it stands in the incident.", show_default=False)] = "",
    ledger: LedgerOption = None,
) -> None:
    """Start a job again in place, now: evidence is captured, its workers end, and all ranks start on the same machines. Its controller
    does it, if it may: max_restarts, pauses and dry run hold as ever.

    Example: minder job restart llm-70b --reason "a data loader is stuck"
    """
    from minder.cli.remote import demand_note, open_ledger
    from minder.cli.tables import operator_name
    from minder.model.clock import SystemClock
    from minder.model.errors import BadInputError
    from minder.record.incidents import Ledger
    from minder.record.incidents.orders import demand_running, order_restart

    said = demand_note(reason, "--reason")
    with open_ledger(ledger) as opened:
        if not isinstance(opened, Ledger):
            typer.echo(opened.client.restart_job(name, said).detail)
            return
        demand_running(opened, name)
        if not _is_heard(name, ledger):
            raise BadInputError(f"no controller of {name} is heard: start it with `minder run` or `minder watch`, then ask again")
        typer.echo(order_restart(opened, name, operator_name(), said, SystemClock().now_s()))


@app.command("diagnose")
def diagnose(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    probes: ProbeNames = None,
    force: Annotated[bool, typer.Option("--force", help="Although ranks of the job run or wait: those that run are slowed down.")] = False,
    launchers: Annotated[
        bool, typer.Option("--launchers", help="Ask the job's launchers, with its user and libraries, not the agents; needs --config.")
    ] = False,
    pairs: Annotated[
        bool,
        typer.Option("--pairs", help="Have the machines exchange data by pairs, in rounds; in place of the probes that are not named."),
    ] = False,
    pair_port: Annotated[
        int | None,
        typer.Option(min=1024, max=65535, help="Where one of each pair listens. [default: a random port of 20000 to 29999 for each test]"),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Its job.toml, which names the agents and their token.")] = None,
    agent_token_file: AgentToken = None,
    note: Annotated[str, typer.Option(help="Why; it stands in the ledger.")] = "",
    format_: TableFormat = "table",
    ledger: LedgerOption = None,
) -> None:
    """Test all machines of a job that stands, its standbys too, with the same probes at the same time, and compare them. Refused while
    ranks of the job run, or wait for a restart: they hold its devices. With --pairs they exchange data by pairs: a machine that fails or
    is slow with two others is named, and so is a link between two good ones. Exit status 1: a machine or a link was found faulty or
    slow, or was not tested.

    Example: minder job diagnose llm-70b --probes device_health,gemm,disk
    """
    from contextlib import nullcontext

    from minder.app.pairing import PairOptions
    from minder.app.probing import ask_machines, chosen_probes, ranks_that_run
    from minder.cli.pairs import conclude_pairs, pair_and_record
    from minder.cli.probes import agents_of_job, conclude, judge_and_record, launchers_of, load_job, open_local
    from minder.cli.tables import check_choice
    from minder.model.errors import BadInputError

    check_choice("--format", format_, ("table", "json"))
    if pairs and probes is not None and format_ == "json":
        raise BadInputError("--format json is one document: give --pairs or --probes, not both")
    names, (job, place) = chosen_probes(probes), load_job(config, ledger)
    tls = None if job is None else job.tls.context()
    with open_local(place, needed=config is None) or nullcontext() as opened:
        agents = agents_of_job(name, job, agent_token_file, opened)
        if not force and (running := ranks_that_run(agents, name, tls)):
            where = "; ".join(f"{machine}: {', '.join(map(str, ranks))}" for machine, ranks in sorted(running.items())[:4])
            raise BadInputError(f"ranks of {name} run or wait ({where}): probes would disturb them; end the job first, or give --force")
        asked = launchers_of(config, agents) if launchers else agents
        status = 0
        if probes is not None or not pairs:
            tested = ask_machines(asked, names, force=force, tls=tls)
            status = conclude(tested, judge_and_record(tested, opened, "diagnose", name, note), format_)
        if pairs:
            graph = pair_and_record(asked, job, opened, PairOptions(port=pair_port, force=force), (name, note))
            status = max(status, conclude_pairs(graph, format_))
    raise typer.Exit(status)


def _is_heard(name: str, ledger: str | None) -> bool:
    """Whether the job's controller beats in this ledger, or wrote its status on this machine a moment ago."""
    import time

    from minder.act.controller.lease import is_led
    from minder.act.controller.reporting.status import read_status, status_age_s
    from minder.model.resources import default_state_dir
    from minder.record.incidents import find_ledger

    status = read_status(default_state_dir() / "jobs" / name / "status.json")
    return (status is not None and status_age_s(status, time.time()) < 10.0) or is_led(find_ledger(ledger), name)
