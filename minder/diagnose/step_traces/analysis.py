"""One trace analysed: the study's figures, the cause, and the answer as a JSON document."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from minder.diagnose.step_traces.balance import Balance, measure_balance
from minder.diagnose.step_traces.cause import Finding, find_cause
from minder.diagnose.step_traces.scenarios import prepare
from minder.diagnose.step_traces.study import Study, study
from minder.diagnose.step_traces.trace import StepTrace

__all__ = ["Analysis", "analyse", "rounded", "to_document"]

_TRUSTED_ERROR = 0.05  # the study drops traces whose replay is farther off


@dataclass(frozen=True, slots=True)
class Analysis:
    trace: StepTrace
    study: Study
    balance: Balance
    finding: Finding

    @property
    def trusted(self) -> bool:
        """Whether the replay explains the recorded steps well enough (5 %, the study's line)."""
        return abs(self.study.replay_error) <= _TRUSTED_ERROR


def analyse(trace: StepTrace) -> Analysis:
    """Raises TraceError where the trace's operations do not fit together."""
    costs = prepare(trace)
    balance = measure_balance(costs)
    found = study(costs)
    return Analysis(trace, found, balance, find_cause(costs, found, balance))


def to_document(analysis: Analysis) -> dict[str, Any]:
    """The JSON document of docs/step-traces.md, and what we add to it."""
    found, balance, finding, trace = analysis.study, analysis.balance, analysis.finding, analysis.trace
    return {
        "slowdown": rounded(found.slowdown),
        "replay_error": rounded(found.replay_error),
        "waste": rounded(found.waste),
        "by_dp_rank": {str(rank): rounded(value) for rank, value in found.by_dp_rank.items()},
        "by_stage": {str(stage): rounded(value) for stage, value in found.by_stage.items()},
        "by_optype": {kind: rounded(value) for kind, value in sorted(found.by_kind.items(), key=lambda item: -item[1])},
        "worst_workers_share": rounded(found.worst_workers_share),
        "last_stage_share": rounded(found.last_stage_share),
        "cause": finding.cause,
        "blame": [{"dp_rank": rank, "stage": stage} for rank, stage in finding.blame],
        "by_worker": [
            {"dp_rank": rank, "stage": stage, "rank": int(trace.rank_PD[stage, rank]), "slowdown": rounded(found.worker_PD[stage, rank]),
             "against_peers": rounded(balance.against_peers_PD[stage, rank])}
            for stage in range(trace.layout.pp_size) for rank in range(trace.layout.dp_size)
        ],
        "by_step": {
            str(step): {"seconds": rounded(recorded_s), "simulated": rounded(simulated_s), "slowdown": rounded(simulated_s / found.ideal_s)}
            for step, recorded_s, simulated_s in zip(trace.steps, found.recorded_T, found.simulated_T, strict=True)
        },
        "step_seconds": {
            "recorded": rounded(found.recorded_T.mean()), "simulated": rounded(found.simulated_T.mean()), "ideal": rounded(found.ideal_s),
            "with_cause_fixed": rounded(finding.fixed_s),
        },
        "shares": {cause: rounded(share) for cause, share in finding.shares.items()},
        "forward_backward_correlation": {str(stage): rounded(value) for stage, value in enumerate(balance.correlation_P)},
        "trusted": analysis.trusted,
        "ignored": list(trace.ignored),
        "cut_off_step": trace.cut_off,
    }  # fmt: skip


def rounded(value: float) -> float | None:
    """Six digits: more would be noise. NaN (no peers to compare with) is null."""
    return round(float(value), 6) if math.isfinite(value) else None
