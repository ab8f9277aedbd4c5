"""The live picture of a demo, built of rich's parts from a Feed. Reads the feed, changes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from minder.model.decision import Decision
from minder.model.evidence import Verdict
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.report import describe_evidence
from minder.simulate.demo.feed import Feed
from minder.wire.codec import from_json

__all__ = ["clean", "draw_screen", "sparkline"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_OLD_S = 3.0  # a heartbeat older than this is shown in a strong colour
_ROLES = {"training": "green", "standby": "cyan", "evicted": "bold red", "spare": "dim"}
_BAR = 10
_EVIDENCE_LINES = 4


def clean(text: str, limit: int = 160) -> str:
    """One printable line: what a failed process wrote may hold anything, escape sequences too."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def sparkline(values: Sequence[float], width: int) -> str:
    """The values as a row of at most `width` blocks; each block is the mean of its share, the lowest is the smallest.

    >>> sparkline([4.0, 3.0, 2.0, 1.0], 4)
    '█▆▃▁'
    """
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    edges = [len(values) * i // count for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(_BLOCKS[round((mean - low) / span * (len(_BLOCKS) - 1))] for mean in means)


def draw_screen(feed: Feed, width: int) -> RenderableType:
    """Header, machines, step and loss, verdict, decision, timeline."""
    parts: list[RenderableType] = [_header(feed), _machines(feed), _progress(feed, width)]
    verdict, decision = _newest_verdict(feed.events), _newest_decision(feed.events)
    if verdict is not None:
        parts.append(_verdict(feed, verdict))
    if decision is not None:
        parts.append(_decision(feed, decision))
    if feed.milestones:
        parts.append(_timeline(feed))
    return Group(*parts)


def _header(feed: Feed) -> Text:
    options = feed.options
    where = "" if options.fault in ("none", "exception") else f" in m{options.machine}"
    facts = [f"seed {options.seed}", feed.lab_mode, feed.telemetry, "masked" if options.masked else "", "plain" if options.plain else ""]
    text = Text("minder demo ", style="bold")
    text.append(f"{options.fault}{where}", style="bold magenta")
    text.append("  " + " · ".join(fact for fact in facts if fact) + f"  {feed.elapsed_s:5.1f} s", style="dim")
    # while it simply runs, the controller's last words are those of the start
    quiet = feed.status.get("phase") == "running" and _newest_verdict(feed.events) is None
    message = feed.message if quiet else str(feed.status.get("message") or feed.message)
    return text.append(f"\n{clean(feed.shortened(message))}")


def _machines(feed: Feed) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name, justify in (("machine", "left"), ("role", "left"), ("state", "left"), ("step", "right")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for name in ("agent", "launcher"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("anomaly (1 = alarm)", no_wrap=True)
    for row in feed.status.get("machines", ()):
        table.add_row(*_machine_row(feed, row))
    return table


def _machine_row(feed: Feed, row: Mapping[str, Any]) -> list[Text]:
    role = str(row.get("role", ""))
    gone = role == "evicted"
    style = _ROLES.get(role, "")
    step = row.get("step")
    return [
        Text(feed.short(str(row.get("name", ""))), style=style),
        Text(role, style=style),
        Text(", ".join(row.get("workers") or ()) or "-", style="dim" if gone else ""),
        Text("-" if step is None else str(step)),
        _age(row.get("agent_age_s"), gone),
        _age(row.get("launcher_age_s"), gone),
        _score(row.get("score")),
    ]


def _age(age_s: float | None, gone: bool) -> Text:
    if age_s is None:
        return Text("-", style="dim")
    return Text(f"{age_s:.1f} s", style="dim" if gone else "bold red" if age_s > _OLD_S else "")


def _score(score: float | None) -> Text:
    if score is None:
        return Text("-", style="dim")
    filled = min(_BAR, max(0, round(score * _BAR)))
    return (
        Text("█" * filled, style="bold red" if score >= 1.0 else "yellow")
        .append("░" * (_BAR - filled), style="dim")
        .append(f" {score:.1f}")
    )


def _progress(feed: Feed, width: int) -> Text:
    step, total = feed.step or 0, feed.options.total_steps
    filled = min(20, 20 * step // total)
    text = Text(f"\nstep {step} of {total} ").append("█" * filled, style="green").append("░" * (20 - filled), style="dim")
    losses = [loss for _, loss in list(feed.losses)]
    if losses:
        text.append(f"  loss {losses[-1]:.3f} ").append(sparkline(losses, min(24, max(8, width - 64))), style="cyan")
    return text.append(f"  generation {feed.status.get('generation', 0)}")


def _newest_verdict(events: Sequence[LedgerEvent]) -> Verdict | None:
    found = [event for event in events if event.kind == kinds.VERDICT and event.payload.get("kind") != "recovered"]
    return from_json(Verdict, found[-1].payload) if found else None


def _newest_decision(events: Sequence[LedgerEvent]) -> Decision | None:
    found = [event for event in events if event.kind == kinds.DECISION]
    return from_json(Decision, found[-1].payload) if found else None


def _verdict(feed: Feed, verdict: Verdict) -> Text:
    who = ", ".join(feed.short(machine) for machine in verdict.machines) or "no machine (the job fails)"
    text = Text("\nverdict ", style="bold").append(who, style="bold magenta")
    text.append(f"  {verdict.cause}, {verdict.tier}, confidence {verdict.confidence:.2f}", style="")
    for title, items in (("for", verdict.evidence), ("against", verdict.against)):
        lines = [clean(feed.shortened(describe_evidence(item).rpartition(" (")[0]), 110) for item in items[:_EVIDENCE_LINES]]
        lines += [f"and {len(items) - _EVIDENCE_LINES} more"] if len(items) > _EVIDENCE_LINES else []
        for line in lines or ["nothing"]:
            text.append(f"\n  {title:8}", style="dim").append(line)
    return text


def _decision(feed: Feed, decision: Decision) -> Text:
    text = Text("decision ", style="bold").append(decision.action, style="bold magenta")
    text.append(" " + ", ".join(feed.short(machine) for machine in decision.machines))
    if decision.replacements:
        text.append(f", {', '.join(feed.short(machine) for machine in decision.replacements)} takes the place")
    if decision.size is not None:
        text.append(f"; the job {decision.size.words}")
    return text.append(f"  ({decision.reason}: {clean(feed.shortened(decision.detail), 90)})", style="dim")


def _timeline(feed: Feed) -> Text:
    begin_s = feed.milestones[0].time_s
    text = Text("timeline", style="bold")
    for milestone in feed.milestones:
        text.append(f"\n  {milestone.time_s - begin_s:+7.1f} s  ", style="dim").append(milestone.label)
        if milestone.key == "injected" and feed.fault_detail:
            text.append(f": {clean(feed.fault_detail, 80)}", style="dim")
    return text
