"""Findings about a Prometheus: does it answer, do its series make metrics, which label names the machine, is its clock ours."""

from __future__ import annotations

from collections.abc import Mapping

from minder.doctor.finding import Finding
from minder.doctor.proposal import Proposal
from minder.ingest.sources.mapping import Rule
from minder.model.metrics import find_metric

__all__ = ["look_at_clock", "look_at_families", "look_at_proposal"]

_SKEW_S = 2.0
_SLOW_S = 30.0
_SHOWN = 5
_WARNS = "its answer may not be whole: mend what it names, and ask again"
_FAMILIES = {
    frozenset({"gpu"}): (
        "GPU metrics: slow, hot and throttled GPUs are not seen",
        "run the DCGM exporter, or `minder agent`, on every machine",
    ),
    frozenset({"network"}): (
        "network metrics: bad links are not seen",
        "run node_exporter, or `minder agent`, on every machine",
    ),
    frozenset({"host"}): ("host metrics: machines that run out of memory or CPU are not seen", "run node_exporter, or `minder agent`"),
    frozenset({"job", "tcp"}): ("metrics of the job itself: who stalls the others is not seen", "run `minder agent` on every machine"),
}


def look_at_proposal(url: str, proposal: Proposal, expected: int | None = None) -> list[Finding]:
    """What does not work comes first, then what decides whether the draft is right: machines, families, metrics. expected: machines that
    the job has, where the caller knows it."""
    found = [
        _identity(proposal, expected),
        *_families(proposal),
        *_dark(proposal),
        *_left_out(proposal),
        _mapping(proposal),
        _peers(proposal),
        *(Finding("guess", "note", _guess(rule), "read the drafted mapping and take out what is wrong") for rule in proposal.guessed),
        *(_doubt(item.metric, item.series, item.why) for item in proposal.doubts),
        *(Finding(item.check, "note", item.seen, item.mend) for item in proposal.oddities),
        *_absent(proposal),
        _interval(proposal),
        *_machine_clocks(proposal),
        *(Finding("warning", "note", text[:200], _WARNS) for text in proposal.warnings[:_SHOWN]),
        look_at_clock(proposal.offset_s),
        Finding("prometheus", "ok", f"{url} answers; exporters: {_exporters(proposal)}"),
    ]
    return sorted(found, key=lambda item: item.status != "missing")


def _doubt(metric: str, series: str, why: str) -> Finding:
    mend = f"look at {series} while a job runs, and write a rule with its scale (docs/mappings.md)"
    return Finding("unsure", "note", f"{series} may be {metric}, and is not taken: {why}", mend)


def _exporters(proposal: Proposal) -> str:
    return ", ".join(f"{_job(job)} ({_counted(count, 'target')})" for job, count in proposal.exporters.items()) or "none that we know"


def _job(name: str) -> str:
    return name or "series without a job"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _guess(rule: Rule) -> str:
    return f"{rule.metric} from {', '.join(rule.series)}" + (f", times {rule.scale:g}" if rule.scale != 1.0 else "")


def look_at_clock(offset_s: float) -> Finding:
    """offset_s: the server's clock minus ours."""
    seen = f"its clock is {abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} ours"
    if abs(offset_s) > _SKEW_S:
        return Finding("prometheus clock", "missing", seen, "let both machines follow one time source (chrony, systemd-timesyncd)")
    return Finding("prometheus clock", "ok", seen)


def _machine_clocks(proposal: Proposal) -> list[Finding]:
    """Machines against their Prometheus; a scrape takes a moment, so a second is nothing."""
    if not proposal.clocks_s:
        return []
    off = sorted((item for item in proposal.clocks_s.items() if abs(item[1]) > _SKEW_S), key=lambda item: -abs(item[1]))
    if off:
        seen = f"{len(off)} of {_counted(len(proposal.clocks_s), 'machine')} {'is' if len(off) == 1 else 'are'} off: " + ", ".join(
            f"{name} {value:+.1f} s" for name, value in off[:5]
        )
        return [Finding("clocks", "missing", seen, "let all machines follow one time source (chrony, systemd-timesyncd)")]
    return [Finding("clocks", "ok", f"{_counted(len(proposal.clocks_s), 'machine')} within {_SKEW_S:g} s of the server")]


def _mapping(proposal: Proposal) -> Finding:
    if not proposal.used:
        mend = "scrape node_exporter and the DCGM exporter, or run `minder agent` on every machine; or write a mapping (docs/mappings.md)"
        return Finding("metrics", "missing", "no series of a machine's metrics was recognised", mend)
    which = " + ".join([*proposal.mappings, *(["guesses"] if proposal.guessed else [])])
    return Finding("metrics", "ok", f"{len(proposal.used)} canonical metrics by {which}: {', '.join(proposal.values)}")


def _absent(proposal: Proposal) -> list[Finding]:
    """Families of the catalogue of which nothing is there: each is a kind of fault that telemetry will not show."""
    there = {metric.family for name in proposal.used if (metric := find_metric(name)) is not None}
    if not there:
        return []
    return [Finding("absent", "note", f"no {what}", mend) for family, (what, mend) in _FAMILIES.items() if not family & there]


def _peers(proposal: Proposal) -> Finding:
    shared = proposal.moves_with_steps
    if shared:
        return Finding("peers", "ok", f"{len(shared)} of them move with the training step: peers can be compared")
    mend = "add the DCGM exporter (its profiling fields too), or run `minder agent` on every machine"
    return Finding("peers", "missing", "no metric that moves with the training step: a slow GPU would not be seen", mend)


def _identity(proposal: Proposal, expected: int | None) -> Finding:
    found = proposal.identity
    if proposal.parted is not None:
        first = next(iter(proposal.parted.machines))
        seen = f"machines of several clusters have the same names: {proposal.parted.shown}"
        mend = f"choose the job's: --selector '{proposal.parted.label}=\"{first}\"'"
        return Finding("machines", "missing", seen, mend)
    if found is None:
        mend = "give every target of a machine the same label `machine` in the scrape configuration (relabel_configs)"
        return Finding("machines", "missing", "nothing names the machine of all series of an exporter", mend)
    shown = ", ".join(found.machines[:6]) + (" ..." if len(found.machines) > 6 else "")
    seen = f"{_counted(len(found.machines), 'machine')} by {found.description}: {shown}"
    if found.others:
        seen += f"; {len(found.others)} hosts without GPU metrics or an agent are left aside: {', '.join(found.others[:3])}"
    if expected is not None and expected != len(found.machines):
        return Finding("machines", "missing", f"{seen}; the job has {expected}", "narrow it with --selector, or add missing targets")
    if len(found.machines) < 3:
        return Finding("machines", "note", seen, "with fewer than three machines there are no peers to compare with")
    return Finding("machines", "ok", seen)


def _families(proposal: Proposal) -> list[Finding]:
    """Whether each machine has what the others have: one that lacks a family cannot be judged by it."""
    if proposal.identity is None or not proposal.identity.families:
        return []
    return [look_at_families(proposal.identity.families)]


def look_at_families(families: Mapping[str, frozenset[str]]) -> Finding:
    """families: of each machine those that it has."""
    every = frozenset[str]().union(*families.values())
    lacking = {machine: sorted(every - found) for machine, found in families.items() if every - found}
    if not lacking:
        return Finding("families", "ok", f"each of {_counted(len(families), 'machine')} has {', '.join(sorted(every)) or 'none'}")
    shown = "; ".join(f"{machine} lacks {', '.join(missing)}" for machine, missing in [*lacking.items()][:5])
    seen = f"{len(lacking)} of {len(families)} machines lack what the others have: {shown}{'; ...' if len(lacking) > 5 else ''}"
    return Finding("families", "missing", seen, "scrape the exporter there too, or start it; see the table below")


def _dark(proposal: Proposal) -> list[Finding]:
    """Targets of exporters that give nothing, though the others of their kind do."""
    failing = [f"{item.machine}: its scrape by {item.job} fails" for item in proposal.dark if not item.answers]
    empty = [f"{item.machine}: its target of {item.job} answers, and no metric of it is stored" for item in proposal.dark if item.answers]
    mends = (
        "start the exporter there, or mend its address; the server's page Status > Targets has the error",
        "look at time stamps of the exporter's own, at sample_limit and at metric_relabel_configs",
    )
    return [
        Finding("targets", "missing", "; ".join(found[:_SHOWN]) + ("; ..." if len(found) > _SHOWN else ""), mend)
        for found, mend in zip((failing, empty), mends, strict=True)
        if found
    ]


def _left_out(proposal: Proposal) -> list[Finding]:
    found = proposal.identity
    if found is None:
        return []
    lines = [Finding("copies", "note", seen) for seen in proposal.copies]
    if found.left_out:
        seen = f"{', '.join(_job(job) for job in found.left_out)}: nothing joins its series to the machines, so they take no part"
        lines.append(Finding("left out", "note", seen, "give its targets a label with the machine's name (relabel_configs)"))
    if found.twice:
        seen = f"{', '.join(found.twice)}: asks exporters that another scrape job asks as often, or more often, so it takes no part"
        lines.append(Finding("left out", "note", seen))
    if proposal.gone:
        shown = ", ".join(proposal.gone[:_SHOWN]) + (", ..." if len(proposal.gone) > _SHOWN else "")
        seen = f"{shown}: no sample of the last {proposal.fresh_s:.0f} s, so it takes no part"
        lines.append(Finding("gone", "note", seen, "right if it has left; else start its exporters, set its clock, and ask again"))
    if proposal.clusters is not None:
        label, first = proposal.clusters.label, next(iter(proposal.clusters.machines))
        seen = f"the machines are of several: {proposal.clusters.shown}"
        lines.append(Finding(label, "note", seen, f"if the job is in one of them: --selector '{label}=\"{first}\"'"))
    return lines


def _interval(proposal: Proposal) -> Finding:
    if not proposal.interval_known:
        seen = f"not known how often there is a sample: {proposal.interval_s:g} s is assumed"
        return Finding("interval", "note", seen, "if that is wrong: interval_s under [telemetry] in the job.toml that --draft writes")
    seen = f"scraped every {proposal.interval_s:g} s"
    if proposal.interval_s > _SLOW_S:
        return Finding("interval", "missing", seen, "scrape these exporters every 15 s or faster: verdicts come as fast as samples")
    return Finding("interval", "ok", seen)
