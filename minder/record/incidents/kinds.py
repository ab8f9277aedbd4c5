"""Kinds of ledger events, and what their payload holds. A reader ignores keys and kinds that it does not know.

Records (Verdict, Decision, ActionResult) are written as `minder.wire.codec.to_json` of them.
Events that belong to an incident carry its id in `LedgerEvent.incident`.
"""

from __future__ import annotations

__all__ = [
    "AMBIGUOUS",
    "APPROVAL_ASKED",
    "APPROVAL_CLOSED",
    "APPROVAL_MOVED",
    "APPROVAL_SETTLED",
    "BARRED",
    "CLOSED",
    "CONTROLLER_STARTED",
    "DECISION",
    "DEGRADED",
    "DRIFT",
    "EVIDENCE",
    "FIRST_STEP",
    "GENERATION_STARTED",
    "INTENT",
    "JOB_ENDED",
    "JOB_REGISTERED",
    "JOB_UNWATCHED",
    "JOB_WATCHED",
    "MAINTENANCE",
    "MAINTENANCE_ENDED",
    "NOTE",
    "NOTIFIED",
    "OUTCOME",
    "PAIRS",
    "PAUSE",
    "PROBES",
    "PROGRESS",
    "RECOVERY_PHASE",
    "REPLAY",
    "RESTART_ASKED",
    "RESULT",
    "RETEST_ASKED",
    "RULE_RESTORED",
    "SHADOW",
    "SIGNAL",
    "SIGNAL_COUNT",
    "SIGNED_IN",
    "SKIP_ASKED",
    "SKIP_FAILED",
    "SOURCE_ERROR",
    "STANDBY_ADDED",
    "STEP_STUDY",
    "TOKEN",
    "TRIAL_ENDED",
    "UNBARRED",
    "UNPAUSE",
    "UPDATE_ASKED",
    "UPDATE_FAILED",
    "UPDATE_READY",
    "VERDICT",
    "WORK",
]

# What an intent may be that starts the job again.
ACTS = ("evict", "trial", "restart", "diagnose", "replay")

# A run of a job begins (once per run, not at each controller start: budgets and restart counts begin anew here).
# {machines, standbys, domains?, serials?: {machine: text}, gpus?, agents?: {machine: url}, launchers?: {machine: url},
# largest_group?: machines of the largest parallel group that can be evicted as a whole, ...}:
# whatever a restarted controller needs.
JOB_REGISTERED = "job_registered"
# {outcome: "finished" | "failed", detail?}
JOB_ENDED = "job_ended"
# An administrator had the service watch a job. {config: the content of its job.toml, reason, by, token}
JOB_WATCHED = "job_watched"
# The service watches it no longer. {reason, by, token}
JOB_UNWATCHED = "job_unwatched"
# A controller took over the job. {version?, pid?}
CONTROLLER_STARTED = "controller_started"
# {generation, machines: [...], rank_machine?: {rank: machine}, standbys?: [...], reason?,
# update?: the number of the job's version, 0 or absent: as its launchers were started, update_operation?: of the order that it applies,
# skip_batches?: all batches that it leaves out, skip_operations?: of the orders that it applies,
# full_machines?: how many the job has at full size, where it may go on with fewer,
# sized_in?: the generation in which it last got another number of ranks}
GENERATION_STARTED = "generation_started"
# Verdict. The first one of an incident opens it; kind "recovered" closes an incident in which nothing was done.
VERDICT = "verdict"
# Decision
DECISION = "decision"
# {action: "evict" | "trial" | "restart" | "diagnose" | "replay" | any other word for a smaller step, machines: [...],
# decision?: Decision, ...}.
# Written by Ledger.intend. Only "evict" counts against the budgets of evictions; "trial" and "restart" count as restarts, and
# "diagnose" and "replay" where the job was started again by it.
INTENT = "intent"
# ActionResult with outcome "ambiguous". A RESULT may still follow. Written by Ledger.complete.
AMBIGUOUS = "ambiguous"
# ActionResult with any other outcome: at most one per operation. Written by Ledger.complete.
RESULT = "result"
# An eviction waits for an operator. {decision: Decision, until_s, on_timeout, generation, incidents: [...]}
APPROVAL_ASKED = "approval_asked"
# What became of the question, at most once per operation. {answer: "approved" | "rejected" | "expired", by, reason, why?, token?}
# why: "timeout" | "recovered" | "restarted" | "not_seen_again" where no operator answered
APPROVAL_SETTLED = "approval_settled"
# The controller's clock was set, and the question waits as long as it would have; or another controller took the question over.
# {until_s, by_s}: until when now, and by how much later (negative: earlier) that is by the wall clock
APPROVAL_MOVED = "approval_moved"
# The controller has seen to an answer that led to no eviction. {why, detail}
APPROVAL_CLOSED = "approval_closed"
# An operator wants a machine tested. The controller of the job does it (INTENT with action "retest", RESULT done or failed).
# untouched: nothing was repaired since the eviction, so that a pass says that no fault was found. return: a pass gives the machine back.
# {machine, reason, by, token?, untouched?, return?}
RETEST_ASKED = "retest_asked"
# Probes ran on a machine; those of a job that stands for them, and those beside a restart, belong to its operation.
# {machine, by, why: "test" | "diagnose" | "beside" | "retest" | "standby", note?, round?, results: [ProbeResult],
# judgements: [ProbeJudgement]}
# round: 2 where a fault that only a comparison showed was measured again
PROBES = "probes"
# Machines exchanged data by pairs, in rounds; an event of the incident where there is one. {by, why, note?, graph: PairGraph}
PAIRS = "pairs"
# One group of a dual-phase replay: written before its machines are asked, and again with what became of it.
# {state: "begin" | "end", phase: number from 1, kind: "horizontal" | "vertical" | "halves" | "suspects", group, machines: [...],
# generation, last_generation: its own, a store for each; outcome?: "passed" | "failed" | "unknown", reason?, runs?, failed?}
REPLAY = "replay"
# An operator gives a running job one more standby. The controller takes it in (INTENT with action "join", RESULT done or failed).
# A machine that was returned becomes a standby again by an INTENT with action "rejoin".
# {machine, agent: url, launcher: url, rack?, switch?, by, reason, token?}
STANDBY_ADDED = "standby_added"
# An operator wants the job started again in place. The controller of the job does it (INTENT with action "restart").
# {reason, by, token?}
RESTART_ASKED = "restart_asked"
# An operator, or the ladder's rung "rollback", wants the job to run another version from its next generation on.
# {code?: digest of its files, files?, size_bytes?, env?: {name: value}, args?: [...]}: what is new; or {to: number}: back to that version.
# And {urgent?, note, by, token?}. Each order without `to` is the job's next version (minder.record.incidents.updates).
UPDATE_ASKED = "update_asked"
# Every launcher of the job has the version and would run it. {machines: [...]}
UPDATE_READY = "update_ready"
# A launcher does not take it: nothing of it is applied, and the version before it runs on. {detail}
UPDATE_FAILED = "update_failed"
# An operator, or the ladder's rung "skip_batch", wants the job to leave batches out, or to leave them out no longer: it goes back to a
# checkpoint from before them. {batches: "120-121", undo?, note, by, token?} (minder.record.incidents.skips)
SKIP_ASKED = "skip_asked"
# It cannot be done: nothing is left out for it. {detail}
SKIP_FAILED = "skip_failed"
# What was captured before the kill. {machine, what: "stacks" | "flows" | "processes" | "kernel" | "logs" | ..., data}
# what "telemetry" is no capture: data is a minder.model.telemetry.TelemetryExcerpt without its machine; of several the newest counts.
EVIDENCE = "evidence"
# {phase: "capture" | "evict" | "suspend" | "diagnose" | "replay" | "restart" | "load" | ..., state: "begin" | "end", detail?}
RECOVERY_PHASE = "recovery_phase"
# The job stepped again: closes the incident.
# {step, generation?, resumed_from?, last_step?, steps_lost?, step_seconds?, gpus?, gpu_seconds_lost?}
# steps_lost is last_step - resumed_from where it is not given.
FIRST_STEP = "first_step"
# A generation is far enough past the step at which the one before failed (policy.progress_steps). {generation, steps, seconds, anew}
# anew: by policy.progress_s too, so that restarts are counted anew
PROGRESS = "progress"
# A trial is over; its operation is the event's. {machine, partner, finding, detail}
# finding: "follows the rank" | "stays with the machine" | "did not come back"
TRIAL_ENDED = "trial_ended"
# The machine is kept out of the event's job (of every job where the event has none). {machine, reason?}
BARRED = "barred"
# {machine, by?, note?, forced?}; without a job: back in every job. forced: although no test, or a failed one, speaks for it
UNBARRED = "unbarred"
# {scope: "all" | "job" | "rack", target: name | null, until_s, reason, by?}
PAUSE = "pause"
# {scope, target}; {scope: "everything"} ends every pause
UNPAUSE = "unpause"
# Was the eviction right? {machine, outcome: "confirmed" | "no-fault-found", note?, by?, test?: the operation of the test that says so}
OUTCOME = "outcome"
# A person lets a rule evict again: it is counted anew. {rule, tier, reason, by}
RULE_RESTORED = "rule_restored"
# A planned window. minder.model.history.Maintenance
MAINTENANCE = "maintenance"
# It ends before its time. {id, reason, by}
MAINTENANCE_ENDED = "maintenance_ended"
# {text, by?, attached?: {machines, standbys, gpus}: what a watch found when it attached to a job that it did not start}
NOTE = "note"
# The service notified a receiver, of everything up to an event.
# {target, kind, upto, outcome: "begun" | "delivered" | "refused", detail, attempts?}
NOTIFIED = "notified"
# An operator closed the incident, or its job is over. {by?, note?, why?: "finished" | "given_up" | "gone"}
CLOSED = "closed"
# {source, error}
SOURCE_ERROR = "source_error"
# minder itself works with less than it should. {what, detail?}
DEGRADED = "degraded"
# A challenger would have given a verdict. {detector, verdict: Verdict}; nothing is decided on it.
SHADOW = "shadow"
# A metric left the range that the detector was trained on. minder.diagnose.detectors.drift.Drift
DRIFT = "drift"
# What the what-if analysis says of the job's traced steps: when its cause changes, and once an hour.
# minder.model.evidence.StepStudy without its workers and its time. {generation, cause, slowdown, ...}
STEP_STUDY = "step_study"
# How fast the job works, once an hour, where its steps carry samples or tokens (docs/reliability.md). {update: number of its version,
# unit, machines, rate: a second and machine over the last window, best: the best window of this version so far, relative, window_s}
WORK = "work"
# Another system reported something of a machine of the job. {signal: Signal, id, by, token, role}
SIGNAL = "signal"
# How many signals the rules judged since the last count, and how many were lost on the way: every hour that had any, and at the job's
# end. {since_s, judged, lost: {why: count}}; why: "machine" (its queue was full), "too_many" (more than one machine may say),
# "unreadable", "queue" (too many waited here), "rule" (a rule raised)
SIGNAL_COUNT = "signal_count"
# A token of the service was made or revoked. {what: "created" | "revoked", token, name, role, jobs: [...] | null, machine?, by, reason?}
TOKEN = "token"
# A person signed in to the service's pages with the identity provider. {name, role, jobs: [...] | null, by, token, issuer, subject}
SIGNED_IN = "signed_in"
