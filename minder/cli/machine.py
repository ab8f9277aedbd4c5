"""`minder machine`: machines that were evicted: list them, give them back, say whether it was right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minder.cli.options import LedgerOption, TableFormat
from minder.cli.probes import AgentToken, ProbeNames

if TYPE_CHECKING:
    from minder.config import JobConfig
    from minder.record.client.ledger import RemoteLedger
    from minder.record.incidents import Ledger
    from minder.record.incidents.machines import MachineRecord

__all__ = ["app", "evict", "give_back", "list_machines", "outcome", "retest", "test"]

app = typer.Typer(help="Machines that were evicted: list, test, return, and whether it was right.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="The machine's name, as `minder machine list` prints it.")]


@app.command("list")
def list_machines(
    format_: TableFormat = "table",
    ledger: LedgerOption = None,
) -> None:
    """Every machine that was evicted or barred, and whether it still is.

    Example: minder machine list
    """
    import json

    from minder.cli.remote import open_ledger
    from minder.cli.tables import check_choice, print_table
    from minder.model.clock import format_time
    from minder.record.incidents.machines import MACHINE_KINDS, fold_machines
    from minder.wire.codec import to_json

    check_choice("--format", format_, ("table", "json"))
    with open_ledger(ledger) as opened:
        records = sorted(fold_machines(opened.events(kinds=MACHINE_KINDS)).values(), key=lambda record: record.machine)
    if format_ == "json":
        typer.echo(json.dumps(to_json(records), indent=1))
        return
    if not records:
        typer.echo("no machine was ever evicted or barred")
        return
    rows = [("machine", "barred from", "evictions", "last eviction", "incident", "right?", "test")]
    for record in records:
        last = "-" if record.last_eviction_s is None else format_time(record.last_eviction_s)[:19] + "Z"
        barred = ", ".join(record.barred_in) or "-"
        rows.append((record.machine, barred, str(record.evictions), last, record.incident or "-", record.outcome or "-", _state(record)))
    print_table(rows)


@app.command("outcome")
def outcome(
    name: NameArgument,
    verdict: Annotated[str, typer.Argument(help="confirmed or no-fault-found.", metavar="confirmed|no-fault-found")],
    note: Annotated[str, typer.Option(help="What was found.")] = "",
    incident: Annotated[str | None, typer.Option(help="The incident meant; the machine's latest if not given.")] = None,
    ledger: LedgerOption = None,
) -> None:
    """Record what the repair found: was the eviction right?

    Example: minder machine outcome node-0002 confirmed --note "bad HBM, GPU 3"
    """
    from minder.cli.remote import demand_note, open_ledger
    from minder.cli.tables import check_choice, operator_name
    from minder.model.errors import BadInputError
    from minder.record.incidents import Ledger, kinds
    from minder.record.incidents.machines import MACHINE_KINDS, fold_machines

    check_choice("the outcome", verdict, ("confirmed", "no-fault-found"))
    with open_ledger(ledger) as opened:
        record = fold_machines(opened.events(kinds=MACHINE_KINDS)).get(name)
        if incident is not None:
            meant = opened.incident(incident)
            if name not in (*meant.machines, *meant.evicted):
                raise BadInputError(f"incident {incident} does not name {name}: it names {', '.join(meant.machines) or 'no machine'}")
            found, job = meant.id, meant.job
        elif record is not None:
            found, job = record.incident or "", record.job
        else:
            raise BadInputError(f'machine "{name}" was never evicted or barred: `minder machine list` shows those that were')
        payload = {"machine": name, "outcome": verdict, "note": note, "by": operator_name()}
        if isinstance(opened, Ledger):
            opened.append(kinds.OUTCOME, payload, job=job, incident=found or None)
        else:
            opened.client.tell_outcome(name, verdict, demand_note(note, "--note"), found or None)
    typer.echo(f"{name}: {verdict}" + (f" (incident {found})" if found else ""))


@app.command("return")
def give_back(
    name: NameArgument,
    job: Annotated[str | None, typer.Option(help="Only for this job; every job if not given.")] = None,
    note: Annotated[str, typer.Option(help="Why it is fit again.")] = "",
    config: Annotated[Path | None, typer.Option(help="job.toml with an [engine]: also tests the machine, and ends minder's drain.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Although its newest test failed or has not ended; --note says why.")] = False,
    ledger: LedgerOption = None,
) -> None:
    """Let a barred machine work again: the controller of its job has its launcher start the workers, and it waits as a standby. With
    --config its scheduler may use it again too, if it was minder that drained it.

    Example: minder machine return node-0002
    """
    from minder.cli.remote import demand_note, open_ledger
    from minder.cli.tables import operator_name
    from minder.model.errors import BadInputError
    from minder.record.incidents import Ledger, kinds
    from minder.record.incidents.history import find_barrings

    settings, place = (None, ledger) if config is None else _engine_of(config, ledger)
    with open_ledger(place) as opened:
        events = opened.events(kinds=[kinds.BARRED, kinds.UNBARRED])
        barrings = find_barrings(events, name)
        if job is not None and None in barrings:
            raise BadInputError(f"{name} is barred from every job: return it without --job")
        meant = [event for owner, event in barrings.items() if job in (None, owner)]
        if not meant and settings is None:
            where = f"from job {job}" if job else "from any job"
            raise BadInputError(f'machine "{name}" is not barred {where}: `minder machine list` shows those that are')
        unfit = _demand_fit(opened, name, settings, note if force else "")
        if settings is not None:
            from minder.app.engine import return_machine

            if not isinstance(opened, Ledger):
                raise BadInputError("--config works on this machine only: leave --server out")
            typer.echo(return_machine(settings, opened, name).detail)
        if isinstance(opened, Ledger):
            for event in meant:  # one event per job, so that each job's own record has it
                payload = {"machine": name, "by": operator_name(), "note": note} | ({"forced": unfit} if unfit is not None else {})
                opened.append(kinds.UNBARRED, payload, job=event.job, incident=event.incident)
        else:
            opened.client.give_back(name, demand_note(note, "--note"), job, force=force)
    jobs = ", ".join(event.job for event in meant if event.job)
    typer.echo(
        f"{name} may work again" + (f" for {jobs}: it waits as a standby as soon as its launcher has started its workers" if jobs else "")
    )


@app.command("evict")
def evict(
    name: NameArgument,
    job: Annotated[str, typer.Option(help="The job that it leaves.")],
    reason: Annotated[str, typer.Option(help="Why; it stands in the incident.")],
    ledger: LedgerOption = None,
) -> None:
    """Order a machine out of a job that runs. The job's controller does it, if it may: budgets, pauses, standbys and dry run hold as ever.

    Example: minder machine evict node-0002 --job llm-70b --reason "fan 3 is dead"
    """
    from minder.cli.remote import demand_note, open_ledger
    from minder.model.clock import SystemClock
    from minder.record.incidents import Ledger
    from minder.record.incidents.orders import order_eviction

    said = demand_note(reason, "--reason")
    with open_ledger(ledger) as opened:
        if isinstance(opened, Ledger):
            from minder.cli.tables import operator_name

            typer.echo(order_eviction(opened, name, job, operator_name(), said, SystemClock().now_s()))
        else:
            typer.echo(opened.client.evict(name, job, said).detail)


@app.command("retest")
def retest(
    name: NameArgument,
    job: Annotated[str | None, typer.Option(help="Whose controller asks the agent; the job that bars the machine if not given.")] = None,
    note: Annotated[str, typer.Option(help="Why: what was repaired.")] = "",
    untouched: Annotated[bool, typer.Option("--untouched", help="Nothing was repaired: a pass says that no fault was found.")] = False,
    return_: Annotated[bool, typer.Option("--return", help="Give the machine back when it passes.")] = False,
    wait: Annotated[float, typer.Option(min=0.0, help="Wait so many seconds for what comes of it.")] = 0.0,
    ledger: LedgerOption = None,
) -> None:
    """Have a machine that is out of its job tested: its agent runs the command of its --retest, or the probes of its --retest-probes, asked
    by the job's controller. A fault that is found confirms the eviction; a pass of an untouched machine says that it was not right.

    Exit status 1: the test failed, or has not ended after --wait.

    Example: minder machine retest node-0002 --note "new HBM" --wait 900
    """
    from minder.cli.remote import demand_note, open_ledger
    from minder.model.errors import BadInputError
    from minder.record.incidents import Ledger
    from minder.record.incidents.retests import order_retest, wait_for_retest

    with open_ledger(ledger) as opened:
        if isinstance(opened, Ledger):
            from minder.cli.tables import operator_name

            typer.echo(order_retest(opened, name, job, operator_name(), note, untouched=untouched, give_back=return_))
        elif untouched or return_:
            raise BadInputError("--untouched and --return work on the ledger's own machine: leave --server out")
        else:
            typer.echo(opened.client.retest(name, demand_note(note, "--note"), job).detail)
        if wait:
            found = wait_for_retest(opened.events, name, wait)
            typer.echo(f"{name}: {found.state}" + (f": {found.detail}" if found.detail else ""))
            raise typer.Exit(0 if found.state == "passed" else 1)


@app.command("test")
def test(
    name: Annotated[str | None, typer.Argument(help="The machine's name; not needed with --local.")] = None,
    probes: ProbeNames = None,
    local: Annotated[bool, typer.Option("--local", help="Test this machine here, without an agent.")] = False,
    folder: Annotated[Path | None, typer.Option(help="With --local: where the disk probe writes. [default: the temporary folder]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Although training processes run there: they are slowed down.")] = False,
    config: Annotated[Path | None, typer.Option(help="job.toml that names the machine's agent and its token.")] = None,
    agent: Annotated[str | None, typer.Option(help="Where its agent listens, like http://10.0.0.9:9401.")] = None,
    agent_token_file: AgentToken = None,
    note: Annotated[str, typer.Option(help="Why; it stands in the ledger.")] = "",
    format_: TableFormat = "table",
    ledger: LedgerOption = None,
) -> None:
    """Test a machine with probes: its agent runs them, one after the other, and they are judged beside equal machines and its own past, as
    the ledger knows them. Exit status 1: a probe found it faulty or slow, or said nothing.

    Example: minder machine test --local --probes links,disk
    """
    from contextlib import nullcontext

    from minder.app.probing import ask_machines, chosen_probes, run_here
    from minder.cli.probes import conclude, find_agent, judge_and_record, load_job, open_local
    from minder.cli.tables import check_choice
    from minder.model.errors import BadInputError

    check_choice("--format", format_, ("table", "json"))
    names = chosen_probes(probes)
    if local and (agent or config or force):
        raise BadInputError("--local tests this machine without an agent: leave --agent, --config and --force out")
    if not local and (name is None or folder is not None):
        raise BadInputError("name the machine, or give --local; --folder goes with --local, an agent has its own --probe-folder")
    job, place = load_job(config, ledger)
    with open_local(place, needed=not local and agent is None and config is None) or nullcontext() as opened:
        if local:
            found = run_here(names, folder)
            tested = {name or found.machine: found}
        else:
            tls = None if job is None else job.tls.context()
            tested = ask_machines([find_agent(str(name), agent, job, agent_token_file, opened)], names, force=force, tls=tls)
        judged = judge_and_record(tested, opened, "test", None, note)
    raise typer.Exit(conclude(tested, judged, format_))


def _state(record: MachineRecord) -> str:
    return record.retest.state if record.retest is not None else "-"


def _demand_fit(opened: Ledger | RemoteLedger, name: str, settings: JobConfig | None, forced: str) -> str | None:
    """What speaks against a return that is forced; None where nothing does. settings: whose [policy.ladder] says what is asked; the
    defaults if None. forced: why it is fit all the same. Raises BadInputError where it is not forced."""
    import time

    from minder.model.errors import BadInputError
    from minder.record.incidents.machines import MACHINE_KINDS, fold_machines, unfit_because

    record = fold_machines(opened.events(kinds=MACHINE_KINDS)).get(name)
    ladder = None if settings is None else settings.policy_config(False).ladder
    asked = () if ladder is None else (ladder.distrust_evictions, ladder.distrust_window_s)
    unfit = unfit_because(record, time.time(), *asked)
    if unfit is not None and not forced.strip():
        raise BadInputError(f"{unfit}: mend and test it, or give --force and --note with the reason why it is fit all the same")
    return unfit


def _engine_of(config: Path, ledger: str | None) -> tuple[JobConfig, str | None]:
    """The configuration, and the ledger of its job unless another one is meant."""
    import os

    from minder.cli.extras import demand_controller

    demand_controller()
    from minder.app.build import state_dir_of
    from minder.config import load_config

    loaded = load_config(config, only_watch=True)
    return loaded, ledger or os.environ.get("MINDER_LEDGER") or str(state_dir_of(loaded) / "ledger.db")
