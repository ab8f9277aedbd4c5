"""The rung `diagnose`: all machines of a job are tested at once while the job stands, by its launchers, and then the job goes on.

The order of things, each in the ledger before the next: the intent; the job is suspended (minder.act.controller.recover ended its
workers); the probes run; what they measured, with the judgement; the result; a verdict on each machine that has a fault. Then what was
found is decided on like everything else: a machine goes, or the next rung is climbed. Where neither is done (a pause, a question to an
operator, no rung), the job is started again as it was, by this operation itself.

Every launcher knows the operation by its name. So a controller that takes over asks for the same tests and starts nothing twice, and one
that finds the result decides on it. `policy.diagnose_limit_s` ends the tests whatever is missing; a person's pause, or order to restart,
does at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from minder.act.controller.backlog import Item
from minder.act.controller.held import Held, HeldJob, Hold, MakeContext, Suspends
from minder.act.controller.state import JobState
from minder.act.policy.config import PolicyConfig
from minder.act.recovery.generation_plan import machine_order
from minder.diagnose.diagnostics.diagnosis import Diagnosis, TestRound, conclude, doubtful
from minder.diagnose.diagnostics.judgement import judge_machines
from minder.edge.probes.contract import PROBES, find_programs
from minder.model.clock import Clock
from minder.model.decision import Decision
from minder.model.errors import WireError
from minder.model.evidence import Evidence, Verdict
from minder.model.history import LedgerEvent
from minder.model.probes import ProbeJudgement, ProbeResult
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.probes import fold_probes, past_results, probes_payload, read_past
from minder.wire.codec import from_json
from minder.wire.fleet import Fleet

__all__ = ["SOURCE", "Diagnosing", "probe_evidence", "probe_verdict"]

SOURCE = "probes"  # of verdicts
_PATIENCE_S = 20.0  # so long may a launcher be silent, or refuse because ranks still run
_SURE = 0.95


@dataclass(slots=True)
class _Run(Held):
    """One diagnosis. number: of the round. answers: machine to its results, of those that are done; partial: of the others. troubled_s:
    since when a machine has not answered or refused."""

    names: tuple[str, ...]
    number: int = 1
    answers: dict[str, tuple[ProbeResult, ...]] = field(default_factory=dict)
    partial: dict[str, tuple[ProbeResult, ...]] = field(default_factory=dict)
    untested: dict[str, str] = field(default_factory=dict)
    troubled_s: dict[str, float] = field(default_factory=dict)


class Diagnosing(Hold[_Run]):
    """Every probe on every machine of a job that stands. Every method raises LedgerError."""

    action: Literal["diagnose"] = "diagnose"
    part = "diagnosis"  # of a tick

    def __init__(
        self, state: JobState, ledger: Ledger, fleet: Fleet, config: PolicyConfig, clock: Clock,
        context: MakeContext, recovery: Suspends,
    ) -> None:  # fmt: skip
        super().__init__(HeldJob(state, ledger, config, clock, context), recovery, "tests")
        self._fleet = fleet

    @property
    def limit_s(self) -> float:
        return self._config.diagnose_limit_s

    def _new_run(self, decision: Decision, items: list[Item], incident: str, intent: LedgerEvent, begun_s: float) -> _Run:
        machines = machine_order(self._state.rank_machine)
        names = self._chosen(decision, machines)
        return _Run(decision, incident, items, machines, self._state.generation, intent.id, intent.time_s, begun_s, names)

    def _go_on(self, run: _Run) -> None:
        if self._state.phase == "suspended":
            self._begin_tests(run)
        else:
            self._ask(run)

    def _settle_again(self, run: _Run) -> None:
        self._settle(run, "")

    def _chosen(self, decision: Decision, machines: Sequence[str]) -> tuple[str, ...]:
        """Every probe of one machine; alignment where numbers are in doubt, or are due to be looked at."""
        due = decision.trouble == "nan" or self._is_alignment_due(machines)
        programs = find_programs()
        return tuple(name for name in PROBES if "peers" not in programs[name].probe.needs and (name != "alignment" or due))

    def _is_alignment_due(self, machines: Sequence[str]) -> bool:
        since_s = self._clock.now_s() - self._config.alignment_after_s
        begun_s = max((event.time_s for event in self._held.events(kinds.JOB_REGISTERED)), default=since_s)
        aligned = (
            run
            for run in fold_probes(self._held.events(kinds.PROBES))
            if run.machine in machines and run.time_s > since_s and any(item.probe == "alignment" for item in run.results)
        )
        return begun_s <= since_s and next(aligned, None) is None

    def _begin_tests(self, run: _Run) -> None:
        """As soon as no rank runs any more, or could have ended by now."""
        if self._held.still_runs(self._fleet, run.machines, self._passed_s(run)):
            return
        self._held.phase(run, "suspend", "end")
        self._held.phase(run, "diagnose", "begin", ", ".join(run.names))
        self._state.phase = "diagnosing"
        self.on_say(f"testing {len(run.machines)} machines of {self._state.name} while it stands: {', '.join(run.names)}")
        self._ask(run)

    def _ask(self, run: _Run) -> None:
        wanted = [name for name in run.machines if name not in run.answers and name not in run.untested]
        programs = find_programs(run.names)
        probes = [{"id": name, "sha256": program.sha256} for name, program in programs.items()]
        order = {"operation": f"{run.operation_id}/{run.number}", "probes": probes}
        self._ledger.check_fence()
        for machine, answer in self._fleet.probes(dict.fromkeys(wanted, order)).items():
            self._hear(run, machine, answer)
        if all(name in run.answers or name in run.untested for name in run.machines):
            self._end_round(run)

    def _hear(self, run: _Run, machine: str, answer: Mapping[str, Any] | WireError) -> None:
        why = ""
        if not isinstance(answer, WireError):
            why = str(answer.get("detail") or "its launcher refuses") if answer.get("state") == "refused" else ""
            try:
                found = from_json(tuple[ProbeResult, ...], answer.get("results") or ())
            except WireError as error:
                run.untested[machine] = f"its results cannot be read: {error}"
                return
            if answer.get("state") == "done":
                run.answers[machine] = found
            elif found:
                run.partial[machine] = found
        else:
            why = str(answer)
        if not why:
            run.troubled_s.pop(machine, None)
            return
        since_s = run.troubled_s.setdefault(machine, self._clock.steady_s())
        if self._clock.steady_s() - since_s > _PATIENCE_S:
            run.untested[machine] = why

    def _end_round(self, run: _Run) -> None:
        """A fault that only a comparison shows is measured again, by all machines: it is compared with theirs."""
        self._write_results(run)
        again = doubtful(self._rounds(run)) if run.number == 1 else ()
        if not again:
            self._settle(run, "")
            return
        run.number, run.names, run.answers, run.partial = 2, again, {}, {}
        self.on_say(f"measuring again what only a comparison shows: {', '.join(again)}")

    def _end(self, run: _Run, why: str) -> None:
        run.answers |= {name: found for name, found in run.partial.items() if name not in run.answers}
        left = [name for name in run.machines if name not in run.answers and name not in run.untested]
        run.untested |= dict.fromkeys(left, why or f"not done within {self._config.diagnose_limit_s:.0f} s")
        self._write_results(run)
        self._settle(run, why)

    def _write_results(self, run: _Run) -> None:
        """Each machine's once, with the judgement beside all others."""
        past = read_past(self._ledger.events, self._clock.now_s())
        judged = judge_machines(run.answers, lambda probe: past_results(past, probe))
        written = {(event.payload.get("machine"), event.payload.get("round")) for event in self._held.own(run, kinds.PROBES)}
        for machine, results in run.answers.items():
            if results and (machine, run.number) not in written:
                payload = probes_payload(machine, results, judged[machine], by="minder", why="diagnose") | {"round": run.number}
                self._held.append(run, kinds.PROBES, payload)

    def _settle(self, run: _Run, why: str) -> None:
        """From what is in the ledger, so that a controller that takes over comes to the same. why: what ended it before its time."""
        found = conclude(run.machines, self._rounds(run), run.untested)
        for phase in ("suspend", "diagnose"):
            self._held.phase(run, phase, "end")
        detail = f"ended before its time: {why}" if why else found.words()
        self._held.complete(run, "failed" if why else "done", detail)
        verdicts = self._verdicts(run, found)
        if verdicts or why:  # the person that ends the tests ends the climb: only what was found by then is decided on
            run.items = [(verdict, run.incident) for verdict in verdicts]
        run.over, self._state.phase = True, "suspended"
        self.on_say(f"tests of {self._state.name}: {detail}")

    def _verdicts(self, run: _Run, found: Diagnosis) -> list[Verdict]:
        """On each machine with a fault of its own, in the ledger once."""
        verdicts = [probe_verdict(name, items, self._clock.now_s(), run.since_s) for name, items in found.failed.items()]
        self._held.say_verdicts(run, verdicts, SOURCE)
        return verdicts

    def _rounds(self, run: _Run) -> list[TestRound]:
        events = self._held.own(run, kinds.PROBES)
        numbers = {event.id: int(event.payload.get("round") or 1) for event in events}
        return [TestRound(item.machine, numbers[item.event_id], item.results, item.judgements) for item in fold_probes(events)]


def probe_verdict(machine: str, faults: Sequence[ProbeJudgement], now_s: float, since_s: float) -> Verdict:
    """A machine that its own test found faulty: evidence that belongs to the machine."""
    evidence = tuple(probe_evidence(item, since_s) for item in faults)
    return Verdict(now_s, "machine", "evict", (machine,), "explicit", _SURE, since_s, evidence, (), (SOURCE,))


def probe_evidence(item: ProbeJudgement, since_s: float) -> Evidence:
    """With the number that deviates, where one does."""
    bad = next((measure for measure in item.measures if measure.verdict in ("fail", "slow")), None)
    said = f"{item.probe} {item.verdict}: {item.reason}"
    if bad is None:
        return Evidence("probe", item.machine, said, since_s=since_s)
    return Evidence("probe", item.machine, said, bad.name, bad.device, bad.value, bad.expected, since_s)
