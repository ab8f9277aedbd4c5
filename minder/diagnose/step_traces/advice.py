"""The answer in words: what slows the steps down, where, and what to change.

The table is for people; programs read the JSON document.
"""

from __future__ import annotations

import numpy as np

from minder.diagnose.step_traces.analysis import Analysis
from minder.diagnose.step_traces.cause import COMMUNICATION, SEQUENCE, STAGE, WORKER
from minder.diagnose.step_traces.schema import reported_kind
from minder.model.evidence import STRAGGLES

__all__ = ["advise", "as_table"]

_DISTRUST = ": over 5 %, so much of the step is not in the trace; trust it little"
_KINDS_SHOWN, _WORKERS_SHOWN = 5, 5


def advise(analysis: Analysis) -> str:
    """One or two sentences."""
    finding, found = analysis.finding, analysis.study
    gain = f"A step would take {finding.fixed_s:.4g} s instead of {found.simulated_T.mean():.4g} s."
    if finding.cause == WORKER:
        return f"{_name_workers(analysis)}: look at the machine, or evict it. {gain}"
    if finding.cause == STAGE:
        return f"{_name_stage(analysis)}: no machine is to blame. Move layers to the other stages. {gain}"
    if finding.cause == SEQUENCE:
        return (
            f"Microbatches differ in length (forward and backward time rise together, correlation {analysis.balance.within_worker:.2f};"
            f" the longest takes {analysis.balance.longest_microbatch:.1f} times the mean): no machine is to blame. Spread long sequences"
            f" over ranks and microbatches by the sum of squared lengths. {gain}"
        )
    if finding.cause == COMMUNICATION:
        return f"{_name_link(analysis)} {gain}"
    if found.slowdown < STRAGGLES:
        return f"The job does not straggle: less than {STRAGGLES:.1f} times the ideal."
    return (
        "Slow, but by none of the four causes alone: operations vary without a pattern that stays (garbage collection and other pauses of"
        " the host look like this). Trace more steps, and collect garbage on all ranks in the same step."
    )


def as_table(analysis: Analysis) -> str:
    found, finding, trace = analysis.study, analysis.finding, analysis.trace
    lines = [
        f"cause         {finding.cause}",
        f"advice        {advise(analysis)}",
        f"slowdown      {found.slowdown:.3f} times the ideal step, {max(found.waste, 0.0):.1%} of the time wasted",
        f"steps         {len(trace.steps)} ({trace.steps[0]} to {trace.steps[-1]}), {_layout(analysis)}",
        f"replay error  {found.replay_error:.1%}" + ("" if analysis.trusted else _DISTRUST),
        f"shares        worst 3 % of workers {found.worst_workers_share:.1%}, last stage {found.last_stage_share:.1%}",
        "if repaired   " + ", ".join(f"{cause} {share:.1%}" for cause, share in finding.shares.items()) + " of the slowdown gone",
        "by stage      " + _ratios({str(stage): value for stage, value in found.by_stage.items()}),
        "by dp rank    " + _ratios(_largest({str(rank): value for rank, value in found.by_dp_rank.items()})),
        "by operation  " + _ratios(_largest(found.by_kind)),
        "by worker     " + ", ".join(_worst_workers(analysis)),
    ]
    if trace.ignored:
        lines.append(f"left out      {', '.join(trace.ignored)}: the schema does not know these operations")
    if trace.cut_off is not None:
        lines.append(f"left out      step {trace.cut_off}: the trace ends before it does")
    return "\n".join(lines)


def _layout(analysis: Analysis) -> str:
    layout = analysis.trace.layout
    return f"dp {layout.dp_size} x pp {layout.pp_size}, vpp {layout.vpp_size}"


def _ratios(values: dict[str, float]) -> str:
    return ", ".join(f"{name}: {value:.3f}" for name, value in values.items())


def _largest(values: dict[str, float]) -> dict[str, float]:
    names = sorted(values, key=lambda name: -values[name])
    return {name: values[name] for name in names[:_KINDS_SHOWN]}


def _worst_workers(analysis: Analysis) -> list[str]:
    worker_PD = analysis.study.worker_PD
    order = np.argsort(-worker_PD, axis=None, kind="stable")[:_WORKERS_SHOWN]
    places = [np.unravel_index(int(place), worker_PD.shape) for place in order]
    return [f"dp {rank} stage {stage} (rank {analysis.trace.rank_PD[stage, rank]}): {worker_PD[stage, rank]:.3f}" for stage, rank in places]


def _name_workers(analysis: Analysis) -> str:
    said = []
    for rank, stage in analysis.finding.blame:
        ratio = analysis.balance.against_peers_PD[stage, rank]
        slower = round(analysis.balance.steady_PD[stage, rank] * len(analysis.trace.steps))
        who = f"dp rank {rank} of stage {stage} (global rank {analysis.trace.rank_PD[stage, rank]})"
        often = f"slower in {slower} of {len(analysis.trace.steps)} steps"
        said.append(f"{who} computes {ratio:.2f} times as long as its peers in the stage, {often}")
    return "; ".join(said)


def _name_stage(analysis: Analysis) -> str:
    stage_P = analysis.balance.stage_P
    stage = int(stage_P.argmax())
    last = " (the last: it has the output layer)" if stage == len(stage_P) - 1 else ""
    alone = " With one data-parallel rank it looks the same as a slow machine" if analysis.trace.layout.dp_size == 1 else ""
    return f"Stage {stage}{last} computes {stage_P[stage]:.2f} times as long as the mean stage, on all of its ranks.{alone}".rstrip(".")


def _name_link(analysis: Analysis) -> str:
    link = analysis.finding.slowest_link
    if link is None:
        return "Communication is slow."
    kind, stage, rank = link
    where = f"stage {stage}" + (f", dp rank {rank}" if rank is not None else "")
    share = analysis.study.by_kind.get(reported_kind(kind), 1.0)
    alone = f"{kind} at {where} loses most (alone {share:.2f} times the ideal step)"
    return f"{alone}: look at the network between its ends; no worker computes slowly."
