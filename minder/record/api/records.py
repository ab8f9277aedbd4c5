"""What the fields of the ledger's records mean, for the API's document: the records themselves are plain (minder.model)."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["RECORD_FIELDS"]

RECORD_FIELDS: Mapping[str, Mapping[str, str]] = {
    "Evidence": {
        "source": "Rule that it comes from.",
        "machine": "Machine that it is of; null where it is of none.",
        "message": "The evidence in words.",
        "metric": "Canonical name of the metric; null where it is of none.",
        "device": "Device of that machine, such as gpu3; null where it is of none.",
        "observed": "Observed value, in the metric's base unit.",
        "expected": "Value that its peers have, in the same unit.",
        "since_s": "Since when, in unix seconds.",
    },
    "Failure": {
        "time_s": "When it failed, in unix seconds.",
        "machine": "Machine that failed.",
        "ranks": "Ranks of the job on it.",
        "sort": "`crash`, `hang`, `nonfinite` or `slow`.",
        "kind": "`machine` where the evidence belongs to machines, else `program` or `unknown`.",
        "fingerprint": "What it is recognised by when it comes back; empty where it has no structure.",
        "step": "Newest training step before it; null if not known.",
        "generation": "Generation of the job that it happened in.",
        "stepped": "Whether that generation had made a step.",
        "code_version": "Version of the training program; empty if not known.",
        "text": "The failure in words.",
    },
    "Verdict": {
        "time_s": "When it was concluded, in unix seconds.",
        "kind": "What it is about; `recovered` closes an episode.",
        "tier": "How grave.",
        "machines": "Machines that it accuses.",
        "cause": "Kind of fault.",
        "confidence": "Confidence, 0 to 1.",
        "since_s": "Since when the trouble stands, in unix seconds.",
        "evidence": "What speaks for it.",
        "against": "What speaks against it.",
        "sources": "Rules that agree on it.",
        "failures": "What failed: it is compared when the same trouble comes back.",
    },
    "Price": {
        "acting_gpu_s": "GPU-seconds that acting now costs (device-seconds where a machine has no GPUs).",
        "waiting_gpu_s": "GPU-seconds that waiting would cost, in the same unit.",
    },
    "Decision": {
        "operation_id": "Id of the operation that carries it out.",
        "time_s": "When it was decided, in unix seconds.",
        "action": "What is to be done.",
        "machines": "Machines that it is done to.",
        "reason": "Word for the reason; `act` where every stage passed.",
        "detail": "The reason in words.",
        "verdict": "Verdict that it answers.",
        "price": "What acting and waiting cost; null where neither was priced.",
        "replacements": "Standbys that take the place of the machines.",
        "jobs_affected": "Jobs that it stops for a moment.",
        "stages": "Stages of the policy that were asked, in order, as `stage: pass` lines.",
        "rung": "Rung of the ladder; of a `none` the one that waits; empty in what an earlier version wrote.",
        "trouble": "Kind of trouble that the rung is for.",
        "passed_over": "Rungs that could not be used, and why.",
        "climbed": "Rungs that the job climbed before, within the ladder's window, the newest last.",
        "beside": "What runs with it, such as `probes`.",
        "size": "How many machines the job goes on with, where that changes; else null.",
        "joins": "Standbys that make the job larger, without taking another machine's place.",
        "update": "Version of the job's code that a rollback leads to, 0: as its launchers were started; null where nothing is taken back.",
    },
    "Size": {
        "machines": "Machines that the job goes on with.",
        "full": "Machines that it has at full size.",
    },
    "PassedOver": {
        "rung": "Name of the rung, or `probes` for what should have run beside one.",
        "reason": "Word for the reason.",
        "detail": "The reason in words.",
    },
    "Climb": {
        "rung": "Name of the rung.",
        "time_s": "When it was climbed, in unix seconds.",
        "operation_id": "Id of the operation that carried it out.",
        "machines": "Machines that it was done to.",
        "trouble": "Kind of trouble that it was for.",
        "incident": "Incident that it belongs to; null for none.",
        "outcome": "What came of it: empty while it is under way, else `done`, `failed`, `ambiguous`, `held` or `came back`.",
        "failures": "What it was climbed for.",
        "finding": "What a diagnosis or a replay found, in words; empty of other rungs.",
    },
    "ActionResult": {
        "operation_id": "Id of the operation.",
        "time_s": "When it ended, in unix seconds.",
        "outcome": "What came of it; `ambiguous`: it is not known whether it happened.",
        "detail": "The same in words.",
        "undo": "Command that takes it back; empty where there is nothing to take back.",
    },
}
