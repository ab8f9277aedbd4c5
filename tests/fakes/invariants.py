"""What must hold of every schedule, whatever happened. `Watch` receives each write, effect and tick; `broken` is what did not hold.

Nothing here asks the product whether it was right: events of the ledger are counted anew, and the machines know which of them was faulty.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from schedule import MACHINES, Schedule
from sim_fleet import SimMachines

from minder.act.policy.config import PolicyConfig
from minder.model.batch_ranges import parse_ranges
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds

__all__ = ["Watch"]

HOUR_S, DAY_S, STANDS_S = 3600.0, 86_400.0, 30.0
HELD_UP_S = 240.0  # controllers that die, and ledgers that are full, delay the end
LATE_S = 60.0  # a decision that was made before may wait for its answer
TWICE, SHOWN = 2, 12  # evictions of a machine that is to be tested first; climbs that a decision shows


class Watch:
    """The invariants of one run."""

    def __init__(self, schedule: Schedule, policy: PolicyConfig, world: SimMachines) -> None:
        self._schedule, self._policy, self._world = schedule, policy, world
        limits = (policy.max_evictions_per_job, policy.max_evictions_per_day, policy.max_evictions_per_hour)
        # of a run, a day, an hour: so few machines get the least where the site sets nothing
        self._allowed = tuple(least if given is None else given for given, least in zip(limits, (8, 8, 4), strict=True))
        self.broken: list[str] = []
        self.generations: list[Mapping[str, str]] = []  # rank to machine of each
        self.wrote_s = 0.0  # the newest event, by the clock that cannot be set
        self._intended: set[str] = set()
        self._numbers: set[int] = set()  # of the job's generations, in this run
        self._started: dict[str, str] = {}
        self._paused: dict[tuple[Any, Any], float] = {}
        self._ordered: set[str] = set()  # machines that an operator ordered out
        self._approved: set[str] = set()
        self._rejected: set[str] = set()
        self._acts: list[str] = []  # operations that started the job again, or began to
        self._reattempts: Counter[tuple[str, str, str, int]] = Counter()  # by what failed: machine, sort, fingerprint, and the code
        self._evictions: dict[str, tuple[str, ...]] = {}  # operation to its machines, until its result
        self._tests: dict[str, str] = {}  # operation to its machine
        self._gone: Counter[str] = Counter()  # machine to its evictions since it last passed a test
        self._placed: set[str] = set()
        self._diagnosis = ""  # the one that holds the job
        self._over: set[str] = set()  # operations with a result
        self._groups: dict[tuple[str, str], str] = {}  # operation of a replay's phase, and machine, to its group
        self._secrets: dict[str, set[str]] = {}  # secret of a pair test to the machines that know it
        self._meetings: dict[tuple[int, int], tuple[str, str]] = {}  # generation and port to the phase and the group that meets there
        self._held_s = 0.0  # since when, by the clock that cannot be set
        self._asked: set[str] = set()  # orders of another version of the code
        self._applied: dict[str, int] = {}  # of those: the generation that applied it
        self._update: dict[int, int] = {}  # generation to the version that it runs, as the ledger says
        self._skips: dict[str, tuple[str, bool]] = {}  # orders: their batches, and whether they take them back
        self._skipped: dict[str, int] = {}  # of those: the generation that applied it
        self._left_out: dict[int, str] = {0: ""}  # generation to what it leaves out, as the ledger says
        self._faulty: dict[str, float] = {}  # standby to when a probe of it failed; none has passed since

    def fail(self, invariant: str, detail: str) -> None:
        self.broken.append(f"{invariant}: {detail}")

    def wrote(self, event: LedgerEvent) -> None:
        """One event is in the ledger."""
        if event.kind != kinds.PROBES:  # standbys are tested for ever
            self.wrote_s = self._world.clock.monotonic_s()
        if event.kind == kinds.JOB_REGISTERED:  # another run numbers its generations anew
            self._numbers.clear()
            self._meetings.clear()
        if event.kind == kinds.INTENT:
            self._intended.add(str(event.operation_id))
            if event.payload.get("action") in kinds.ACTS:
                self._act(event)
            if event.payload.get("action") in ("diagnose", "replay"):
                self._hold(str(event.operation_id))
        elif event.kind == kinds.GENERATION_STARTED:
            self._intended.add(str(event.operation_id))
            self._diagnosis = ""
            self._generation(event)
        elif event.kind == kinds.RESULT:
            self._ended(event)
        elif event.kind == kinds.PROBES:
            if event.payload["why"] == "standby":
                self._probed(event)
        elif event.kind == kinds.RETEST_ASKED:
            self._tests[str(event.operation_id)] = str(event.payload["machine"])
        elif event.kind == kinds.PAUSE:
            self._paused[event.payload["scope"], event.payload["target"]] = float(event.payload["until_s"])
        elif event.kind == kinds.UNPAUSE:
            self._paused.clear()
        elif event.kind == kinds.APPROVAL_SETTLED:
            where = {"approved": self._approved, "rejected": self._rejected}.get(str(event.payload["answer"]))
            if where is not None:
                where.add(str(event.operation_id))
        elif event.kind == kinds.SIGNAL:
            self._ordered.add(str(event.payload["signal"]["machine"]))
        elif event.kind == kinds.UPDATE_ASKED:
            self._asked.add(str(event.operation_id))
        elif event.kind == kinds.SKIP_ASKED:
            self._skips[str(event.operation_id)] = (str(event.payload["batches"]), bool(event.payload.get("undo")))
        elif event.kind == kinds.SKIP_FAILED and event.operation_id in self._skipped:
            self.fail("a skip is applied, or it fails", str(event.operation_id))
        elif event.kind == kinds.UPDATE_FAILED and event.operation_id in self._applied:
            self.fail("an update is whole, or it is not applied", str(event.operation_id))

    def _act(self, event: LedgerEvent) -> None:
        name, decision = str(event.operation_id), event.payload["decision"]
        if any(until_s > event.time_s for until_s in self._paused.values()):
            self.fail("nothing is done during a pause", f"{name} at {event.time_s:.0f}")
        self._climb(name, decision)
        alone = event.payload["action"] == "restart" and not event.payload["machines"] and self._schedule.rollback == "auto"
        if decision["rung"] == "rollback" and not alone:
            self.fail("a rollback never evicts, and is the site's wish", name)
        if decision.get("skip") and (decision["action"] != "restart" or event.payload["machines"] or self._schedule.skip != "auto"):
            self.fail("a skip never evicts, and is the site's wish", name)
        if event.payload["action"] != "evict":
            return
        self._evictions[name] = tuple(event.payload["machines"])
        gone = [self._world.by_name[machine] for machine in event.payload["machines"]]
        # a standby's link may have failed before it took ranks: then its probe says so in the job, too
        faulty = all(item.has_full_disk or item.probe_fails_until_s > 0.0 for item in gone)
        if decision["verdict"]["sources"] == ["probes"] and not faulty:
            self.fail("no eviction by a probe that said nothing", f"{name} of {event.payload['machines']}")
        if decision["verdict"]["sources"] == ["replay"] and not all("bits" in item.faults for item in gone):
            self.fail("no eviction by a replay of a machine that computes right", f"{name} of {event.payload['machines']}")
        if decision["verdict"]["sources"] == ["pairs"] and not all(item.slow_link for item in gone):
            self.fail("no eviction by pair tests of a machine whose link is well", f"{name} of {event.payload['machines']}")
        proven = {"pairs", "probes", "whatif", "replay", "order"} & set(decision["verdict"]["sources"])
        if decision["trouble"] == "slow" and self._schedule.slow == "prove" and not proven:
            self.fail("a slow machine goes with a proof, where the site wants one", name)
        if name in self._rejected:
            self.fail("a rejection is honoured", name)
        if self._policy.approval == "required" and name not in self._approved and not self._ordered & set(decision["machines"]):
            self.fail("no eviction without the approval that the site wants", name)

    def _hold(self, name: str) -> None:
        """What is over may be followed by another while the job stands."""
        if self._diagnosis not in ("", name) and self._diagnosis not in self._over:
            self.fail("at most one diagnosis at a time", f"{name} during {self._diagnosis}")
        self._diagnosis, self._held_s = name, self._world.clock.monotonic_s()

    def probed(self, machine: str, body: Mapping[str, Any], leads: bool) -> None:
        """A launcher, or with force an agent, is asked for probes: of the job's machines, or beside a standby's waiting worker."""
        name = str(body["operation"]).split("/")[0]
        if not leads:
            self.fail("only the leader acts", f"{body['operation']} on {machine}")
        if body.get("beside"):  # a standby's test: nothing is acted on
            return
        if name not in self._intended:
            self.fail("an intent before each action", f"{body['operation']} on {machine}")
        if name != self._diagnosis and not body.get("force"):
            self.fail("only a job that stands for it is tested", f"{body['operation']} on {machine}")
        if "pair" in body["probes"][0]:
            self._meets(body["probes"][0]["pair"], machine)
        if "replay" in body["probes"][0]:
            self._replays(str(body["operation"]), machine, body["probes"][0]["replay"])

    def _meets(self, order: Mapping[str, Any], machine: str) -> None:
        """Two machines of the job as it stands know a secret, and no third one."""
        both = self._secrets.setdefault(str(order["secret"]), set())
        both.add(machine)
        if len(both) > 2:
            self.fail("a meeting is of two machines", ", ".join(sorted(both)))

    def _replays(self, phase: str, machine: str, order: Mapping[str, Any]) -> None:
        """A machine is ordered into a group: of one phase into one, which meets where nothing else does."""
        if self._groups.setdefault((phase, machine), str(order["group"])) != order["group"]:
            self.fail("a machine belongs to one group at a time", f"{machine} in {phase}")
        for at in order["meetings"]:
            where = (int(at["generation"]), int(at["port"]))
            if self._meetings.setdefault(where, (phase, str(order["group"]))) != (phase, order["group"]):
                self.fail("each group has stores of its own", f"{where} of {phase} {order['group']}")
            if where[0] in self._numbers:
                self.fail("no group has a generation of the job", f"{where} of {phase} {order['group']}")
        running = self._world.running()
        if running and len(running) == running[0].world:
            self.fail("no job trains while it is replayed", f"{len(running)} ranks during {phase}")

    def _climb(self, name: str, decision: Mapping[str, Any]) -> None:
        """A climb's state is in the ledger, for each controller that leads; and an unknown failure is restarted in place once."""
        shown = [item["operation_id"] for item in decision["climbed"]]
        if self._schedule.approval == "none" and shown != self._acts[-SHOWN:]:  # a question is decided before it is answered
            self.fail("the state of a climb is in the ledger", f"{name} knows of {shown}, and {self._acts[-SHOWN:]} were begun")
        self._acts.append(name)
        if not decision["rung"] or not decision["trouble"]:
            self.fail("every action is a rung of the ladder", name)
        if (decision["rung"], decision["trouble"]) != ("reattempt", "unknown"):
            return
        for item in decision["verdict"]["failures"][:1]:
            key = (item["machine"], item["sort"], item["fingerprint"], item.get("update", 0))  # another code's failure is another
            self._reattempts[key] += 1
            if self._reattempts[key] > 1:
                self.fail("no rung is climbed for ever", f"{name} restarts {key} in place again")

    def _ended(self, event: LedgerEvent) -> None:
        self._over.add(str(event.operation_id))
        name, happened = str(event.operation_id), event.payload["outcome"] in ("done", "already_done")
        for machine in self._evictions.pop(name, ()) if happened else ():
            self._gone[machine] += 1
        if happened:
            self._gone.pop(self._tests.get(name, ""), None)

    def _probed(self, event: LedgerEvent) -> None:
        machine = str(event.payload["machine"])
        if self._world.holder(machine):
            self.fail("no probe runs beside ranks", machine)
        if any(item["verdict"] == "fail" for item in event.payload["judgements"]):
            self._faulty.setdefault(machine, self._world.clock.monotonic_s())
        else:
            self._faulty.pop(machine, None)

    def _generation(self, event: LedgerEvent) -> None:
        placed: Mapping[str, str] = event.payload["rank_machine"]
        self.generations.append(placed)
        self._version(event)
        self._leaves_out(event)
        self._numbers.add(int(event.payload["generation"]))
        if any(generation >= int(event.payload["generation"]) for generation, _ in self._meetings):
            self.fail("no group has a generation of the job", f"generation {event.payload['generation']}")
        entered = set(placed.values()) - self._placed
        self._placed = set(placed.values())
        doubted = sorted(machine for machine in entered if self._gone[machine] >= TWICE)
        if doubted:
            self.fail("a machine evicted twice passes a test first", f"{doubted[0]} in generation {event.payload['generation']}")
        known = [machine for machine in sorted(entered) if self._world.clock.monotonic_s() - self._faulty.get(machine, math.inf) > LATE_S]
        if known:
            self.fail("a standby with a failed probe takes no ranks", f"{known[0]} in generation {event.payload['generation']}")
        twice = [machine for machine, count in Counter(placed.values()).items() if count > 1]
        if twice or sorted(map(int, placed)) != list(range(len(placed))):
            self.fail("one machine, one set of ranks", f"generation {event.payload['generation']}: {dict(placed)}")
        if not (self._schedule.least or len(MACHINES)) <= len(placed) <= len(MACHINES):
            self.fail(
                "a job is never smaller than the site allows, nor larger", f"generation {event.payload['generation']}: {dict(placed)}"
            )
        before = self._started.setdefault(str(event.operation_id), str(event.payload["generation"]))
        if before != str(event.payload["generation"]):
            self.fail("an operation starts one generation", str(event.operation_id))

    def _version(self, event: LedgerEvent) -> None:
        generation, order = int(event.payload["generation"]), event.payload.get("update_operation")
        self._update[generation] = int(event.payload.get("update") or 0)
        if order is None:
            return
        if order not in self._asked:
            self.fail("an order before each update", f"{order} in generation {generation}")
        if self._applied.setdefault(str(order), generation) != generation:
            self.fail("an update is applied at most once", f"{order} in generations {self._applied[str(order)]} and {generation}")

    def _leaves_out(self, event: LedgerEvent) -> None:
        """What was ordered, once, and nothing else."""
        generation, batches = int(event.payload["generation"]), set[int]()
        for item in parse_ranges(next(reversed(self._left_out.values()))):
            batches |= set(item)
        for order in map(str, event.payload.get("skip_operations") or ()):
            if order not in self._skips or order in self._skipped:
                self.fail("a skip is ordered, and applied at most once", f"{order} in generation {generation}")
                continue
            self._skipped[order] = generation
            text, undo = self._skips[order]
            named = {batch for item in parse_ranges(text) for batch in item}
            batches = batches - named if undo else batches | named
        found = str(event.payload.get("skip_batches") or "")
        if {batch for item in parse_ranges(found) for batch in item} != batches:
            self.fail("a generation leaves out what was ordered", f"{found} in generation {generation}, not {sorted(batches)}")
        self._left_out[generation] = found

    def effect(self, machine: str, body: Mapping[str, Any], leads: bool) -> None:
        """A launcher is asked for something. leads: whether the controller that asks holds the lease."""
        parts = str(body["operation_id"]).split("/")
        if not parts[0].startswith("stop-") and parts[0] not in self._intended:
            self.fail("an intent before each action", f"{body['operation_id']} on {machine}")
        if not leads:
            self.fail("only the leader acts", f"{body['operation_id']} on {machine}")

    def tick(self) -> None:
        """At any moment."""
        ranks = Counter(item.rank for item in self._world.running())
        twice = [rank for rank, count in ranks.items() if count > 1]
        if twice:
            self.fail("at most one owner of a rank", f"rank {twice[0]} at {self._world.clock.monotonic_s():.0f}")
        if self.held_s() > max(2.0 * self._policy.diagnose_limit_s, self._policy.replay_limit_s) + HELD_UP_S and not self.broken:
            self.fail("a job stands no longer than its limit for tests", f"{self._diagnosis}, for {self.held_s():.0f} s")

        versions = {item.update for item in self._world.running()}
        generation = next((item.generation for item in self._world.running()), 0)
        if len(versions) > 1 or (versions and generation in self._update and versions != {self._update[generation]}):
            self.fail("never two versions in one generation", f"{sorted(versions)} in generation {generation}")

        skipped = {item.skipped for item in self._world.running()}
        if len(skipped) > 1 or (skipped and generation in self._left_out and skipped != {self._left_out[generation]}):
            self.fail("never two sets of batches in one generation", f"{sorted(skipped)} in generation {generation}")

    def held_s(self) -> float:
        """For how long a diagnosis has held the job."""
        return self._world.clock.monotonic_s() - self._held_s if self._diagnosis else 0.0

    def end(self, events: Sequence[LedgerEvent], phase: str) -> None:
        """When all is calm again and time enough has passed."""
        self._count_budgets(events)
        self._look_for_ends(events, phase)
        self._count_skips(events)
        self._look_for_returns(events)
        self._look_at_the_healthy(events)
        acted = [event for event in events if event.kind == kinds.INTENT and event.payload.get("action") in kinds.ACTS]
        if self._schedule.only_spares and acted:
            self.fail("a spare neither ends nor delays a job", str(acted[0].operation_id))
        quiet_s = self._world.clock.monotonic_s() - self._world.stepped_s
        if self._diagnosis:
            self.fail("no job is tested for ever", f"{self._diagnosis}, for {self.held_s():.0f} s")
        if phase not in ("finished", "failed") and quiet_s > STANDS_S:
            self.fail("no job stands for ever", f"no step for {quiet_s:.0f} s, phase {phase}")

    def _count_budgets(self, events: Sequence[LedgerEvent]) -> None:
        row, tried, evicted = 0, set[str](), list[tuple[float, int]]()
        for event in events:
            action = event.payload.get("action") if event.kind == kinds.INTENT else ""
            if event.kind == kinds.JOB_REGISTERED:  # another run
                row, evicted = 0, []
                tried.clear()
            elif event.kind == kinds.PROGRESS:
                row = 0
                tried.clear()
            elif action in ("restart", "trial"):
                row += 1
                tried |= set(event.payload["machines"]) if action == "trial" else set()
                if row > self._policy.max_restarts * (1 + min(len(tried), 2)) + 1:  # an exchange may put a machine's trouble right, twice
                    self.fail("restarts keep within their budget", f"{row} in a row at {event.operation_id}")
            elif action == "evict":
                evicted.append((event.time_s, len(event.payload["machines"])))
                hour, day = (sum(event.time_s - span_s <= time_s <= event.time_s for time_s, _ in evicted) for span_s in (HOUR_S, DAY_S))
                job, a_day, an_hour = self._allowed
                if hour > an_hour or day > a_day or len(evicted) > job:
                    self.fail("evictions keep within their budget", f"{hour} in an hour, {day} in a day, {len(evicted)} in all")

    def _count_skips(self, events: Sequence[LedgerEvent]) -> None:
        own = [event for event in events if event.kind == kinds.SKIP_ASKED and event.payload["by"] == "minder"]
        if len(own) > self._policy.max_skipped_batches:
            self.fail("skips keep within their bound", f"{len(own)} by minder")

    def _look_for_ends(self, events: Sequence[LedgerEvent], phase: str) -> None:
        ended = {event.operation_id for event in events if event.kind in (kinds.RESULT, kinds.AMBIGUOUS)}
        open_ = [event.operation_id for event in events if event.kind == kinds.INTENT and event.operation_id not in ended]
        if open_ and phase not in ("finished", "failed"):
            self.fail("a result after each intent", ", ".join(map(str, open_)))

    def _look_for_returns(self, events: Sequence[LedgerEvent]) -> None:
        barred: set[str] = set()
        for event in events:
            if event.kind == kinds.BARRED:
                barred.add(str(event.payload["machine"]))
            elif event.kind == kinds.UNBARRED:
                barred.discard(str(event.payload["machine"]))
            elif event.kind == kinds.GENERATION_STARTED and barred & set(event.payload["rank_machine"].values()):
                inside = sorted(barred & set(event.payload["rank_machine"].values()))
                self.fail("a machine returns only with a proof", f"{inside[0]} in generation {event.payload['generation']}")

    def _look_at_the_healthy(self, events: Sequence[LedgerEvent]) -> None:
        evicted = Counter(
            machine
            for event in events
            if event.kind == kinds.INTENT and event.payload.get("action") == "evict"
            for machine in event.payload["machines"]
        )
        for machine, count in evicted.items():
            if count > 1 and not self._world.by_name[machine].was_ill and machine not in self._ordered:
                self.fail("a healthy machine is not evicted twice", machine)
