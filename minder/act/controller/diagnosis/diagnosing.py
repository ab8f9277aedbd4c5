"""The rung `diagnose`: all machines of a job are tested at once while the job stands, by its launchers, and then the job goes on.

The order of things, each in the ledger before the next: the intent; the job is suspended (minder.act.controller.recover ended its
workers); the probes run; what they measured, with the judgement; the result; a verdict on each machine that has a fault. Then what was
found is decided on like everything else: a machine goes, or the next rung is climbed. Where neither is done (a pause, a question to an
operator, no rung), the job is started again as it was, by this operation itself.

Where a machine is suspected of being slow, or the job hangs, its machines exchange data by pairs besides
(minder.act.controller.diagnosis.pair_rounds), and a machine that is slow or faulty with two others goes too.

Every launcher knows the operation by its name. So a controller that takes over asks for the same tests and starts nothing twice, and one
that finds the result decides on it. `policy.diagnose_limit_s` ends the tests whatever is missing; twice of it does where numbers are in
doubt, or a fault waits for its second look: machines that are busy with other work would end such tests unjudged, and the job would train
on with a machine that computes wrongly. A person's pause, or order to restart, ends them at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from minder.act.controller.backlog import Item
from minder.act.controller.diagnosis.held import Held, HeldJob, Hold, Suspends
from minder.act.controller.diagnosis.pair_rounds import PairRounds, Paths
from minder.act.policy.proof import SOURCE as OF_PAIRS
from minder.act.recovery.generation_plan import machine_order
from minder.diagnose.diagnostics.diagnosis import Diagnosis, TestRound, conclude, doubtful
from minder.diagnose.diagnostics.judgement import judge_machines
from minder.edge.probes.contract import PROBES, find_programs
from minder.model.decision import Decision
from minder.model.errors import WireError
from minder.model.evidence import Evidence, Verdict
from minder.model.history import LedgerEvent
from minder.model.pairs import PairGraph
from minder.model.probes import ProbeJudgement, ProbeResult
from minder.record.incidents import kinds
from minder.record.incidents.pairs import fold_pairs, pairs_payload
from minder.record.incidents.probes import fold_probes, past_results, probes_payload, read_past
from minder.record.incidents.timeline import describe
from minder.wire.codec import from_json
from minder.wire.fleet import Fleet

__all__ = ["SOURCE", "Diagnosing", "pair_verdicts", "probe_evidence", "probe_verdict"]

SOURCE = "probes"  # of verdicts
_PATIENCE_S = 20.0  # so long may a launcher be silent, or refuse because ranks still run
_SURE = 0.95
_JUDGED = ("pass", "slow", "fail")
_OF_SPEED = ("links", "device_health", "memory", "loopback", "gemm")  # of a job that is stopped because a machine is slow
_LONGER = 2.0  # times the limit, where numbers are in doubt or a fault is looked at again
_PAIRS_SHARE = 0.5  # of the limit: the probes have the rest
_SUSPECTED_S = 3600.0  # so long a suspicion that a machine is slow is worth a test at the next stop


@dataclass(slots=True)
class _Run(Held):
    """One diagnosis. number: of the round. answers: machine to its results, of those that are done; partial: of the others. troubled_s:
    since when a machine has not answered or refused. slow: the job was stopped because a machine is slow. in_doubt: alignment is to say
    whether a machine computes wrong numbers. by_pairs: machines are to be tested by pairs; pairs: those tests, once they have begun."""

    names: tuple[str, ...]
    number: int = 1
    answers: dict[str, tuple[ProbeResult, ...]] = field(default_factory=dict)
    partial: dict[str, tuple[ProbeResult, ...]] = field(default_factory=dict)
    untested: dict[str, str] = field(default_factory=dict)
    troubled_s: dict[str, float] = field(default_factory=dict)
    slow: bool = False
    in_doubt: bool = False
    by_pairs: bool = False
    pairs: PairRounds | None = None


class Diagnosing(Hold[_Run]):
    """Every probe on every machine of a job that stands. Every method raises LedgerError."""

    action: Literal["diagnose"] = "diagnose"
    part = "diagnosis"  # of a tick

    def __init__(self, held: HeldJob, fleet: Fleet, recovery: Suspends, paths: Paths | None = None) -> None:
        """paths: how the machines reach each other; None: they are not tested by pairs."""
        super().__init__(held, recovery, "tests")
        self._fleet, self._paths = fleet, paths

    @property
    def limit_s(self) -> float:
        run = self._run
        longer = run is not None and (run.in_doubt or run.number > 1)
        return self._config.diagnose_limit_s * (_LONGER if longer else 1.0)

    def _new_run(self, decision: Decision, items: list[Item], incident: str, intent: LedgerEvent, begun_s: float) -> _Run:
        machines = machine_order(self._state.rank_machine)
        slow = decision.trouble == "slow"
        names, in_doubt = self._chosen(decision, machines), decision.trouble == "nan" or self._is_number_odd(machines)
        run = _Run(decision, incident, items, machines, self._state.generation, intent.id, intent.time_s, begun_s, names, slow=slow)
        run.in_doubt = in_doubt and "alignment" in names
        run.by_pairs = (
            self._paths is not None and len(machines) > 1 and (slow or decision.trouble == "hang" or self._is_slow_suspected(run))
        )
        return run

    def _go_on(self, run: _Run) -> None:
        if self._state.phase == "suspended":
            self._begin_tests(run)
        elif run.by_pairs:
            self._test_pairs(run)
        else:
            self._ask(run)

    def _settle_again(self, run: _Run) -> None:
        self._settle(run, "")

    def _chosen(self, decision: Decision, machines: Sequence[str]) -> tuple[str, ...]:
        """Every probe of one machine; alignment where numbers are in doubt, or are due to be looked at."""
        if decision.trouble == "slow":
            return tuple(name for name in PROBES if name in _OF_SPEED)
        due = decision.trouble == "nan" or self._is_alignment_due(machines)
        programs = find_programs()
        return tuple(name for name in PROBES if "peers" not in programs[name].probe.needs and (name != "alignment" or due))

    def _is_alignment_due(self, machines: Sequence[str]) -> bool:
        """The job has run for so long and not all of its machines were judged by it, or a number went wrong since the last one."""
        since_s = self._clock.now_s() - self._config.alignment_after_s
        begun_s = max((event.time_s for event in self._held.events(kinds.JOB_REGISTERED)), default=since_s)
        return (begun_s <= since_s and not self._last_aligned(machines, since_s)) or self._is_number_odd(machines)

    def _is_number_odd(self, machines: Sequence[str]) -> bool:
        """Whether a gradient or a loss went wrong (a spike of five times, say) since all machines were last judged by alignment."""
        since_s = self._clock.now_s() - self._config.alignment_after_s
        odd = (event.id for event in self._held.events(kinds.VERDICT) if event.payload.get("cause") == "numeric" and event.time_s > since_s)
        return max(odd, default=0) > self._last_aligned(machines, since_s)

    def _last_aligned(self, machines: Sequence[str], since_s: float) -> int:
        """The event with which the last of them was judged by it since then, 0 where one was not. What was not judged says nothing, and a
        standby that came in says nothing of the others."""
        aligned = {
            run.machine: run.event_id
            for run in read_past(self._ledger.events, self._clock.now_s())
            if run.time_s > since_s and any(item.probe == "alignment" and item.verdict in _JUDGED for item in run.judgements)
        }
        return min((aligned.get(machine, 0) for machine in machines), default=0)

    def _is_slow_suspected(self, run: _Run) -> bool:
        """Whether a rule, or what-if, said within the hour that the job is slow: this is the next stop."""
        now_s, events = self._clock.now_s(), self._held.events(kinds.VERDICT)
        said = (event.payload for event in events if now_s - event.time_s <= _SUSPECTED_S and event.id < run.event_id)
        return any(item.get("cause") == "slowdown" and item.get("kind") != "recovered" and item.get("tier") != "watch" for item in said)

    def _begin_tests(self, run: _Run) -> None:
        """As soon as no rank runs any more, or could have ended by now."""
        if self._held.still_runs(self._fleet, run.machines, self._passed_s(run)):
            return
        self._held.phase(run, "suspend", "end")
        self._held.phase(run, "diagnose", "begin", ", ".join(run.names))
        self._state.phase = "diagnosing"
        pairs = " and, first, by pairs" if run.by_pairs else ""
        self.on_say(f"testing {len(run.machines)} machines of {self._state.name} while it stands: {', '.join(run.names)}{pairs}")
        self._go_on(run)

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
        since_s = run.troubled_s.setdefault(machine, self._clock.monotonic_s())
        if self._clock.monotonic_s() - since_s > _PATIENCE_S:
            run.untested[machine] = why

    def _end_round(self, run: _Run) -> None:
        """A fault that only a comparison shows is measured again, by all machines: it is compared with theirs."""
        self._write_results(run)
        again = doubtful(self._rounds(run), run.slow) if run.number == 1 else ()
        if not again:
            self._settle(run, "")
            return
        run.number, run.names, run.answers, run.partial = 2, again, {}, {}
        self.on_say(f"measuring again what only a comparison shows: {', '.join(again)}")

    def _test_pairs(self, run: _Run) -> None:
        """The short test first: the probes of a busy machine may use up the time. Where an earlier controller has done it, it is done."""
        if run.pairs is None and self._paths is not None and self._graph(run) is None:
            run.pairs = PairRounds(run.operation_id, run.generation, run.machines, self._fleet, self._clock, self._paths)
        if run.pairs is not None:
            self._ledger.check_fence()
            run.pairs.tick()
        if run.pairs is None or run.pairs.is_over or self._passed_s(run) > _PAIRS_SHARE * self._config.diagnose_limit_s:
            self._write_pairs(run)
            run.by_pairs = False
            self._ask(run)

    def _write_pairs(self, run: _Run) -> None:
        """What the tests by pairs say so far, once."""
        if run.pairs is not None and run.pairs.graph.edges and self._graph(run) is None:
            self._held.append(run, kinds.PAIRS, pairs_payload(run.pairs.graph, by="minder", why="diagnose"))

    def _graph(self, run: _Run) -> PairGraph | None:
        """As it is in the ledger."""
        found = fold_pairs(self._held.own(run, kinds.PAIRS))
        return found[-1].graph if found else None

    def _end(self, run: _Run, why: str) -> None:
        late = why or f"not done within {self.limit_s:.0f} s"
        for name, found in run.partial.items():
            run.answers.setdefault(name, (*found, *_not_run(run.names, found, late)))
        left = [name for name in run.machines if name not in run.answers and name not in run.untested]
        run.untested |= dict.fromkeys(left, late)
        self._write_results(run)
        self._write_pairs(run)
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
        found = conclude(run.machines, self._rounds(run), run.untested, run.slow)
        for phase in ("suspend", "diagnose"):
            self._held.phase(run, phase, "end")
        said = "; ".join([found.words(), *(describe(event) for event in self._held.own(run, kinds.PAIRS))])
        detail = f"ended before its time: {why}" if why else said
        self._held.complete(run, "failed" if why else "done", detail)
        verdicts = self._verdicts(run, found)
        if verdicts or why:  # the person that ends the tests ends the climb: only what was found by then is decided on
            run.items = [(verdict, run.incident) for verdict in verdicts]
        run.over, self._state.phase = True, "suspended"
        self.on_say(f"tests of {self._state.name}: {detail}")

    def _verdicts(self, run: _Run, found: Diagnosis) -> list[Verdict]:
        """On each machine with a fault of its own, in the ledger once."""
        now_s, graph = self._clock.now_s(), self._graph(run)
        by_probes = [probe_verdict(name, items, now_s, run.since_s) for name, items in found.failed.items()]
        by_pairs = [] if graph is None else pair_verdicts(graph, now_s, run.since_s)
        by_pairs = [item for item in by_pairs if not found.failed.keys() & set(item.machines)]
        self._held.say_verdicts(run, by_probes, SOURCE)
        self._held.say_verdicts(run, by_pairs, OF_PAIRS)
        return [*by_probes, *by_pairs]

    def _rounds(self, run: _Run) -> list[TestRound]:
        events = self._held.own(run, kinds.PROBES)
        numbers = {event.id: int(event.payload.get("round") or 1) for event in events}
        return [TestRound(item.machine, numbers[item.event_id], item.results, item.judgements) for item in fold_probes(events)]


def _not_run(names: Sequence[str], found: Sequence[ProbeResult], why: str) -> list[ProbeResult]:
    """What did not come to its turn is not judged: unsaid, it would pass for a pass beside the machines that came so far."""
    programs = find_programs(tuple(name for name in names if name not in {item.probe for item in found}))
    return [ProbeResult(name, program.probe.version, "not_judged", why) for name, program in programs.items()]


def probe_verdict(machine: str, faults: Sequence[ProbeJudgement], now_s: float, since_s: float) -> Verdict:
    """A machine that its own test found faulty: evidence that belongs to the machine."""
    evidence = tuple(probe_evidence(item, since_s) for item in faults)
    return Verdict(now_s, "machine", "evict", (machine,), "explicit", _SURE, since_s, evidence, (), (SOURCE,))


def pair_verdicts(graph: PairGraph, now_s: float, since_s: float) -> list[Verdict]:
    """A verdict on each machine that failed, or was slow, with two others, one of them proven good. A link is no machine's own."""
    named = [node for node in graph.nodes if node.state in ("faulty", "slow")]
    return [
        Verdict(
            now_s, "machine", "evict", (node.machine,), "explicit", _SURE, since_s,
            (Evidence(OF_PAIRS, node.machine, f"pair tests: {node.state}: {node.reason}", since_s=since_s),), (), (OF_PAIRS,),
        )
        for node in named
    ]  # fmt: skip


def probe_evidence(item: ProbeJudgement, since_s: float) -> Evidence:
    """With the number that deviates, where one does."""
    bad = next((measure for measure in item.measures if measure.verdict in ("fail", "slow")), None)
    said = f"{item.probe} {item.verdict}: {item.reason}"
    if bad is None:
        return Evidence("probe", item.machine, said, since_s=since_s)
    return Evidence("probe", item.machine, said, bad.name, bad.device, bad.value, bad.expected, since_s)
