"""`minder demo` from its options to its exit status: play, show, compare, report."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from minder.ingest.sources.events import Truth, write_truth
from minder.model.errors import BadInputError, LabError, MinderError
from minder.model.private import make_private
from minder.simulate.demo.display import Display, open_display
from minder.simulate.demo.feed import Feed
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.pages import keep_pages_open
from minder.simulate.demo.play import Played, compare_with_undisturbed, play
from minder.simulate.demo.report import Report, report_json, report_text, write_report

__all__ = ["make_run_folder", "note_truth", "present"]

_MOST_RUNS = 10_000


def present(options: DemoOptions, as_json: bool = False, serve: bool = False) -> int:
    """Run one demo and print its report; 0 only if everything came out as the fault demands. Files go to a new folder below
    `options.out`. serve: then keep the pages open until Ctrl-C. Raises MinderError: LabError if there was no lab, BadInputError for
    what cannot be asked for here."""
    _check_record(options.record)
    options = replace(options, out=make_run_folder(options.out, options.fault, options.seed))
    feed = Feed(options)
    with open_display(feed, as_json) as display:
        display.say(f"starting a lab of {options.machines} machines and {options.standbys} standbys")
        try:
            played = play(options, display.show, compare=False)
        except BadInputError:
            shutil.rmtree(options.out, ignore_errors=True)  # nothing has happened in it
            raise
        report = _conclude(played, display)
    write_report(report)
    if as_json:
        print(json.dumps(report_json(report), indent=1))
    else:
        print(f"\n{report_text(report)}", end="")
    sys.stdout.flush()
    if serve:
        keep_pages_open(options.out, lambda line: print(f"minder: {line}", file=sys.stderr, flush=True))
    return 0 if report.right else 1


def make_run_folder(root: Path, fault: str, seed: int) -> Path:
    """A new folder <fault>-seed<seed>-<n> below `root`, n counting up from 1: no earlier run is touched. Raises BadInputError."""
    try:
        make_private(root)
        for n in range(1, _MOST_RUNS):
            folder = root / f"{fault}-seed{seed}-{n}"
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise BadInputError(f"--out {root} cannot be written: {error.strerror or error}; name another folder") from error
    raise BadInputError(f"--out {root} holds {_MOST_RUNS - 1} runs of {fault} with seed {seed}: remove some, or name another folder")


def note_truth(recording: Path, played: Played) -> None:
    """truth.json of the recording: what really happened. A lost agent is no fault of a machine: no machine may be accused."""
    fault = None if played.options.fault in ("none", "agent-lost") else played.options.fault
    onset_s = None if fault is None else played.fault_s
    machines = (played.target,) if played.target else ()
    truth = Truth(recording.name, fault, played.target, onset_s, machines)
    write_truth(recording / "truth.json", [truth], single=True)


def _check_record(record: Path | None) -> None:
    if record is not None and ((record / "job.toml").exists() or (record.exists() and not record.is_dir())):
        raise BadInputError(f"--record {record}: it is there already and stays as it is; name a new folder")


def _conclude(played: Played, display: Display) -> Report:
    """Everything that is done after the lab is gone. What fails here is written in the report; the run itself stands."""
    options, feed = played.options, display.feed
    played, not_compared = _compared(played, display)
    out = options.out.absolute()
    recording = (options.record or out / "recording").absolute()
    report = Report(
        played=played,
        ledger=out / "state" / "ledger.db",
        recording=recording,
        lab_mode=feed.lab_mode,
        telemetry=feed.telemetry,
        fault_detail=_detail(feed, options),
        not_compared=not_compared,
    )
    trouble = []
    try:
        note_truth(recording, played)
    except OSError as error:
        trouble.append(f"{recording} holds no recording: {error.strerror}")
    display.say("drawing the incident")
    picture = out / "incident.png"
    try:
        _draw(report, picture)
    except (MinderError, OSError) as error:
        trouble.append(f"no picture: {error}")
        return replace(report, trouble=tuple(trouble))
    return replace(report, picture=picture, trouble=tuple(trouble))


def _compared(played: Played, display: Display) -> tuple[Played, str]:
    """The run with its comparison, or why there is none."""
    if played.options.plain:
        return played, "a script that calls no minder function is promised no equality"
    if not played.outcome.finished:
        return played, "the job did not run to its end"
    display.say("comparing the losses with those of an undisturbed run of the same seed")
    try:
        return replace(played, comparison=compare_with_undisturbed(played.options)), ""
    except LabError as error:
        return played, str(error)


def _detail(feed: Feed, options: DemoOptions) -> str:
    if feed.fault_detail or options.fault not in ("exception", "nan"):
        return feed.fault_detail
    return "by the training script itself"


def _draw(report: Report, path: Path) -> None:
    from minder.simulate.demo.picture import draw_picture

    outcome, options = report.played.outcome, report.played.options
    where = f" in m{options.machine}" if outcome.machine else ""
    parts = [f"{outcome.fault}{where}"]
    if outcome.detect_s is not None:
        parts.append(f"found after {outcome.detect_s:.1f} s")
    if outcome.first_step_s is not None:
        parts.append(f"training again after {outcome.first_step_s:.1f} s")
    title = parts[0] + (": " + ", ".join(parts[1:]) if parts[1:] else ": no machine was accused" if not report.incidents else "")
    draw_picture(report.recording, path, title, report.incidents, report.milestones)
