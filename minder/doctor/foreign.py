"""Findings about a Prometheus: does it answer, do its series make metrics, which label names the machine, is its clock ours."""

from __future__ import annotations

from minder.doctor.finding import Finding
from minder.doctor.proposal import Proposal
from minder.ingest.sources.mapping import Rule
from minder.model.metrics import find_metric

__all__ = ["look_at_clock", "look_at_proposal"]

_SKEW_S = 2.0
_SLOW_S = 30.0
_FAMILIES = {
    frozenset({"gpu"}): (
        "GPU metrics: slow, hot and throttled GPUs are not seen",
        "run the DCGM exporter, or `minder agent`, on every machine",
    ),
    frozenset({"network", "interconnect"}): (
        "network metrics: bad links are not seen",
        "run node_exporter, or `minder agent`, on every machine",
    ),
    frozenset({"host"}): ("host metrics: machines that run out of memory or CPU are not seen", "run node_exporter, or `minder agent`"),
    frozenset({"job", "tcp"}): ("metrics of the job itself: who stalls the others is not seen", "run `minder agent` on every machine"),
}


def look_at_proposal(url: str, proposal: Proposal) -> list[Finding]:
    """One finding per question, in the order in which they must be answered."""
    return [
        Finding("prometheus", "ok", f"{url} answers; exporters: {_exporters(proposal)}"),
        look_at_clock(proposal.offset_s),
        *_machine_clocks(proposal),
        _mapping(proposal),
        *(Finding("guess", "note", _guess(rule), "read the drafted mapping and take out what is wrong") for rule in proposal.guessed),
        *_absent(proposal),
        _peers(proposal),
        _identity(proposal),
        _interval(proposal),
    ]


def _exporters(proposal: Proposal) -> str:
    return ", ".join(f"{job or '(no job)'} ({count} targets)" for job, count in proposal.exporters.items()) or "none that we know"


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
        seen = f"{len(off)} of {len(proposal.clocks_s)} machines are off: " + ", ".join(f"{name} {value:+.1f} s" for name, value in off[:5])
        return [Finding("clocks", "missing", seen, "let all machines follow one time source (chrony, systemd-timesyncd)")]
    return [Finding("clocks", "ok", f"{len(proposal.clocks_s)} machines within {_SKEW_S:g} s of the server")]


def _mapping(proposal: Proposal) -> Finding:
    if not proposal.used:
        mend = "scrape node_exporter and the DCGM exporter, or run `minder agent` on every machine; or write a mapping by hand"
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


def _identity(proposal: Proposal) -> Finding:
    found = proposal.identity
    if found is None:
        mend = "give every target of a machine the same label `machine` in the scrape configuration (relabel_configs)"
        return Finding("machines", "missing", "no label names the machine on all targets", mend)
    shown = ", ".join(found.machines[:6]) + (" ..." if len(found.machines) > 6 else "")
    seen = f'{len(found.machines)} machines by label "{found.label}": {shown}'
    if found.machine_map:
        seen += f"; {len(found.machine_map)} targets without it are matched by their host"
    if found.unnamed:
        mend = f'give them the label "{found.label}", or add them to telemetry.machine_map'
        return Finding("machines", "missing", f"{seen}; nothing tells the machine of {', '.join(found.unnamed[:4])}", mend)
    if len(found.machines) < 3:
        return Finding("machines", "note", seen, "with fewer than three machines there are no peers to compare with")
    return Finding("machines", "ok", seen)


def _interval(proposal: Proposal) -> Finding:
    seen = f"scraped every {proposal.interval_s:g} s"
    if proposal.interval_s > _SLOW_S:
        return Finding("interval", "missing", seen, "scrape these exporters every 15 s or faster: verdicts come as fast as samples")
    return Finding("interval", "ok", seen)
