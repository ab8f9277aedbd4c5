"""The only wiring: a configuration becomes a controller with all its stages."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from minder import __version__
from minder.act.actuators.contract import Actuator
from minder.act.actuators.local import LocalActuator, LocalMachine
from minder.act.controller.attachment import Attachment
from minder.act.controller.beside import Beside, Part, Shadow, watch_drift
from minder.act.controller.engine_recovery import EngineRecovery
from minder.act.controller.engine_work import EngineActuator
from minder.act.controller.exporter import Collects, Exporter
from minder.act.controller.gauges import Gauges, Sight
from minder.act.controller.hung import HungJob, standing_of, whole_context
from minder.act.controller.inbox import Inbox
from minder.act.controller.job_context import JobWork, context_maker, isolated_group
from minder.act.controller.live import LiveWindows
from minder.act.controller.recover import Recovery, RecoverySettings
from minder.act.controller.stages import Stages
from minder.act.controller.state import JobState, fold_job
from minder.act.controller.step import Controller
from minder.act.controller.watched import WatchedJob
from minder.act.policy.policy import Policy
from minder.act.recovery.restart import await_waiting
from minder.app.admission import Admission, registration, with_joined
from minder.app.engine import EngineParts, wire_engine
from minder.app.feeds import build_source, open_aligner, open_recorder, source_words
from minder.app.watch_folder import WatchFolder, open_watch_folder
from minder.config import JobConfig, default_state_dir
from minder.diagnose.detectors.contract import Detector
from minder.diagnose.detectors.drift import DriftMonitor
from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.load_detector import equip_detector, equip_model, open_model
from minder.diagnose.scoring.ray_scoring import RayScoring, open_scoring
from minder.diagnose.verdicts.gate import GatedRule
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.links import LinkLimits
from minder.diagnose.verdicts.live import live_rules
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.diagnose.verdicts.trigger import TriggerRule
from minder.edge.signals.xid import load_xid_rules
from minder.ingest.sources.spoken import SpokenSource
from minder.model.clock import Clock, SystemClock
from minder.model.errors import ConfigError, RecoveryError
from minder.model.observation import Rule
from minder.model.private import make_private
from minder.model.topology import Topology
from minder.record.incidents import Ledger, find_ledger, kinds
from minder.record.incidents.endings import begin_run
from minder.record.registry.folder import Model
from minder.wire.fleet import Fleet

__all__ = ["App", "build", "state_dir_of"]


@dataclass(slots=True)
class App:
    """A wired job. `begin` brings up its first generation (or finds the running one); `run` watches it to its end."""

    config: JobConfig
    controller: Controller
    fleet: Fleet
    ledger: Ledger
    recovery: Recovery | None
    state: JobState
    wake: threading.Event
    clock: Clock
    export: Callable[[], Exporter] | None = None  # opens the address of the controller's own metrics
    exporter: Exporter | None = None
    engine: EngineParts | None = None
    requeue: EngineRecovery | None = None  # of a watched job that its engine starts again
    scoring: RayScoring | None = None  # None: in this process
    attachment: Attachment | None = None  # of a watched job: what is seen of it, and whether it is over
    folder: WatchFolder | None = None  # of a watched job

    def begin(self) -> None:
        """Start the job, or take up where an earlier controller stopped. Raises RecoveryError if it cannot start."""
        self.ledger.read_past()
        self.exporter = None if self.export is None else self.export()
        self.fleet.start()
        name, recovery = self.config.name, self.recovery
        if shared := self.config.shared_tokens():
            until = "for one more version: see `minder token machine --help`, then set machine_token_dir"
            self.controller.say(f"{' and '.join(shared)} in job.toml: one token for all machines, which is read {until}")
        if self.engine is not None:
            self.engine.watch.start()
        if recovery is None:
            self._await_contact()
            self.controller.take_up_incidents()
            self._take_up_engine()
            self.state.phase = "running"
            return
        if self.state.is_under_way:
            self._take_up(recovery)
            return
        topology = self.config.topology()
        registered = registration(self.config, isolated_group(topology, self.config.policy_config(False)))
        begin_run(self.ledger, name, registered)
        self.state.begin_run()
        self.controller.say("waiting for the workers to reach the barrier")
        recovery.prepare()
        placed = self._first_placement(dict(topology.rank_machine))
        self.state.phase = "starting"
        result = recovery.bring_up(placed, f"start-{name}-{self.state.run}", None, "start")
        if result.missing:
            first = next(iter(result.missing.items()))
            raise RecoveryError(f"{first[0]} did not start: {first[1]}")

    def _take_up(self, recovery: Recovery) -> None:
        """An earlier controller began this run."""
        unknown = sorted(set(self.state.rank_machine.values()) - set(self.fleet.machines))
        if unknown:
            raise ConfigError(
                f"{unknown[0]} runs ranks of job {self.config.name} now, but no [[machines]] names it: put it back, or end the job first"
            )
        self.state.generation_start_s = min(self.state.generation_start_s, self.clock.now_s())  # the clock may have been set back since
        self.ledger.append(kinds.CONTROLLER_STARTED, {"pid": os.getpid()}, job=self.config.name)
        self._await_contact()
        self._take_up_engine()
        lines, result = recovery.resume()
        self.controller.take_up_paused()
        for line in lines:
            self.controller.say(line)
        if result is not None:
            self.controller.blame_missing(result)

    def _take_up_engine(self) -> None:
        """What an earlier controller had asked of the engine, and did not see answered."""
        lines: list[str] = []
        if self.engine is not None and self.engine.work is not None:
            self.engine.work.on_say = self.controller.say
        if self.requeue is not None and self.engine is not None:
            run = f"{self.engine.watch.engine.name} {self.engine.watch.engine.job_name}"
            self.requeue.register(run, {machine.name: not machine.standby for machine in self.config.machines})
            lines = self.requeue.take_up()
        elif self.engine is not None and self.engine.work is not None:
            lines = self.engine.work.take_up()
        for line in lines:
            self.controller.say(line)

    def run(self, stopping: threading.Event) -> str:
        """Tick until the job ended or `stopping` is set. Returns the phase it ended in."""
        self.controller.run(self.wake, stopping, min(1.0, self.config.telemetry.interval_s))
        return self.state.phase

    def close(self) -> None:
        """Stop every thread and close every file, whichever of them was begun, and whichever fails at it."""
        with ExitStack() as stack:
            stack.callback(self.ledger.close)
            if self.folder is not None:
                stack.callback(self.folder.close)
            if self.recovery is not None and self.state.phase in ("finished", "failed"):
                stack.callback(self.recovery.end)
            if self.engine is not None:
                stack.callback(self.engine.close)
            stack.callback(self.fleet.stop)
            stack.callback(self.controller.close)
            if self.exporter is not None:
                stack.callback(self.exporter.close)
            if self.scoring is not None:
                stack.callback(self.scoring.close)

    def _await_contact(self, seconds: float = 5.0) -> None:
        end_s = self.clock.steady_s() + seconds
        named = {machine.name for machine in self.config.machines if machine.agent or machine.launcher}
        wanted = (set(self.state.rank_machine.values()) or set(self.fleet.machines)) & named
        while self.clock.steady_s() < end_s:
            views = self.fleet.views()
            if all(views[machine].launcher_age_s is not None or views[machine].agent_age_s is not None for machine in wanted):
                return
            self.clock.sleep(0.1)

    def _refused(self, wanted: Iterable[str]) -> bool:
        """A wrong token does not mend itself. Meanwhile machines that were returned since the last run are asked for their workers."""
        self.controller.pool.tick()
        return bool(set(wanted) & set(self.fleet.refusals()))

    def _first_placement(self, placed: dict[int, str]) -> dict[int, str]:
        """Wait for the configured machines; a standby that is ready takes the place of one that does not come."""
        wanted = [machine for machine in dict.fromkeys(placed.values()) if machine not in self.state.barred]
        late = await_waiting(self.fleet, wanted, self.config.start_deadline_s, self.clock, give_up=lambda: self._refused(wanted))
        late += [machine for machine in dict.fromkeys(placed.values()) if machine in self.state.barred]
        if not late:
            return placed
        from minder.act.recovery.placement import replace_machines

        refusals = self.fleet.refusals()
        ready = self.controller.standbys()
        ready = [machine for machine in ready if machine not in placed.values()]
        if len(ready) < len(late):
            told = [machine for machine in late if machine in refusals]
            if told:
                raise RecoveryError(f"{told[0]} refuses us: {refusals[told[0]]}; mend its address, its token file or [tls] in job.toml")
            why = "its workers never reached the barrier; look at its launcher's log"
            raise RecoveryError(f"{late[0]} is not ready after {self.config.start_deadline_s:.0f} s and no standby is: {why}")
        return replace_machines(placed, late, ready)


def state_dir_of(config: JobConfig) -> Path:
    return Path(config.state_dir) if config.state_dir else default_state_dir()


def open_page(config: JobConfig, parts: tuple[Collects, ...]) -> Callable[[], Exporter] | None:
    """How to open the address of a controller's own metrics, None where the configuration asks for none."""
    address = config.metrics.address
    if address is None:
        return None
    return lambda: Exporter(*address, config.metrics.token(), parts, {"training_job": config.name})


def build(
    config: JobConfig, *, act: bool = False, clock: Clock | None = None, ledger: Ledger | None = None, shows: tuple[Collects, ...] = (),
    away_s: float = 120.0,
) -> App:  # fmt: skip
    """Wire one job. Evictions stay a dry run unless `act`. A job without launchers is only watched. The ledger, if none is given, is
    beside the job's state, unless $MINDER_LEDGER says otherwise. shows: what its metrics show besides its own. away_s: without any process
    for so long, a watched job is over."""
    launched, clock = _is_launched(config), clock or SystemClock()
    model, scoring = open_model(config.detector.uri), open_scoring(config.scoring)
    state_dir = make_private(state_dir_of(config))
    ledger = ledger or Ledger(find_ledger(None, state_dir))
    state = fold_job(config.name, past := ledger.events(job=config.name))
    config = with_joined(config, past) if state.is_under_way else config
    topology, wake = (admission := Admission(config)).topology(), threading.Event()
    fleet = Fleet(config.endpoints(), on_signal=wake.set, tls=config.tls.context())
    parts = wire_engine(config, ledger, clock, act=act, restarts=not launched)
    watched = None if launched else WatchedJob(parts.watch.engine.job_name if parts else config.name, topology.rank_machine)
    folder = None if watched is None else open_watch_folder(config)
    state, state_dir = (state, state_dir) if folder is None else (_as_watched(config.name, topology), folder.path)
    recovery = _recovery(config, state, ledger, fleet, clock, parts) if launched else None
    requeue = None if launched else _requeue(config, state, ledger, fleet, parts)
    tracker, policy = JobTracker(), Policy(config.policy_config(act))
    judge = Judge((rules := _rules_maker(config, model, tracker, ledger, scoring))())
    scores = lambda: next((rule.scores for rule in judge.rules if isinstance(rule, GatedRule)), None)  # noqa: E731 - of those in force now
    windows = LiveWindows(open_aligner(admission), state_dir / "live.json", scores)
    context = context_maker(config.name, topology, policy.config, (tracker, fleet, ledger), watched, _work(config))
    context = whole_context(context, None if parts is None else parts.watch, watched is not None, policy.config, standing_of(judge))
    stages = Stages(
        fleet=fleet,
        source=(spoken := SpokenSource(build_source(admission))),
        windows=windows,
        judge=judge,
        policy=policy,
        recovery=recovery or requeue,
        tracker=tracker,
        context=context,
        recorder=open_recorder(admission, launched and state.is_under_way),
        scores=scores,
        watched=watched,
        attachment=None if watched is None else Attachment(config.name, config.telemetry.interval_s, source_words(config), away_s),
        unread=lambda: spoken.failures,
        inbox=Inbox(ledger, config.name, spoken.drain),
        engine=requeue or (parts.work if parts is not None else None),
        parallelism=topology.parallelism,
        move_clock=_clock_mover(admission, rules, judge, windows, (tracker, watched)),
        admits=admission if launched else None,
        alarm=lambda: next((rule.alarm for rule in judge.rules if isinstance(rule, TriggerRule)), ""),
        unscored=scoring.trouble if scoring is not None else str,
        hung=HungJob(state, ledger, policy.config) if launched or (requeue is not None and config.requeues) else None,
        standing=standing_of(judge),
    )
    if stages.attachment is not None:
        stages.attachment.late_s = lambda: spoken.late_s
    admission.on_admit.append(lambda grown, joined: windows.watch(admission.names))
    export = open_page(config, (*_measures(admission, state, stages, ledger, act), *shows))
    windows.accused = (controller := Controller(state, stages, ledger, clock, state_dir)).accused
    return App(
        config,
        controller,
        fleet,
        ledger,
        recovery,
        state,
        wake,
        clock,
        export,
        engine=parts,
        requeue=requeue,
        scoring=scoring,
        attachment=stages.attachment,
        folder=folder,
    )


def _as_watched(name: str, topology: Topology) -> JobState:
    """A watched job's state is what is seen."""
    return JobState(name, rank_machine=dict(topology.rank_machine))


def _work(config: JobConfig) -> JobWork:
    return JobWork(config.checkpoint_dir, config.total_steps, config.checkpoints == "local")


def _is_launched(config: JobConfig) -> bool:
    """Whether launchers of ours start the job's workers. Raises ConfigError where only some machines have one."""
    launched = [machine for machine in config.machines if machine.launcher is not None]
    if launched and len(launched) != len(config.machines):
        raise ConfigError("some [[machines]] have a launcher and some have none: give all of them one, or none to only watch")
    return bool(launched)


def _rules_maker(
    config: JobConfig, model: Model, tracker: JobTracker, ledger: Ledger, scoring: RayScoring | None
) -> Callable[[], list[Rule]]:
    """What makes the rules of the job, telemetry's detector among them, as they are at the start."""
    topology, xid_rules = config.topology(), load_xid_rules()
    make_detector = equip_model(model) if scoring is None else scoring.maker(config.name, model)
    stages_of = {machine: topology.stages_of(machine) for machine in topology.machines}
    shadow = config.detector.shadow
    links = LinkLimits(config.signals.link_flaps, config.signals.link_flap_window_s, config.signals.link_down_s)
    make_challenger = None if shadow is None else equip_detector(shadow)  # read once: rules are made again when the clock is set

    def rules() -> list[Rule]:
        telemetry = GatedRule(TelemetryRule(make_detector(stages_of)), tracker)
        found = live_rules(tracker, telemetry, xid_rules, config.telemetry.interval_s, topology.parallelism, links)
        challenger = None if make_challenger is None else make_challenger(stages_of)
        return [*found, *_beside(config, tracker, ledger, challenger, model.ranges)]

    return rules


def _clock_mover(
    admission: Admission, rules: Callable[[], list[Rule]], judge: Judge, windows: LiveWindows, job: tuple[JobTracker, WatchedJob | None]
) -> Callable[[float], None]:
    """When the wall clock is set, what is known of the job moves with it; rules, detector and windows begin anew."""

    def move(by_s: float) -> None:
        for each in job:
            if each is not None:
                each.move(by_s)
        judge.restart(rules(), by_s)
        windows.restart(open_aligner(admission))

    return move


def _measures(admission: Admission, state: JobState, stages: Stages, ledger: Ledger, act: bool) -> tuple[Collects, ...]:
    """The controller's own metrics."""
    config, fleet = admission.config, stages.fleet
    history = lambda now_s: ledger.history(config.name, now_s)  # noqa: E731
    sight = Sight(
        state, stages.measures, fleet.views, fleet.refusals, history, config.policy_config(act), SystemClock(),
        agents=admission.agents,
        silent_s=max(30.0, 3.0 * config.telemetry.interval_s),
        watches=stages.watched is not None,
        largest_group=isolated_group(config.topology(), config.policy_config(act)),
        version=__version__,
    )  # fmt: skip
    return sight.measures.registry, Gauges(sight)


def _beside(
    config: JobConfig, tracker: JobTracker, ledger: Ledger, challenger: Detector | None, ranges: Mapping[str, tuple[float, float]]
) -> list[Beside]:
    """What looks on and never decides: the challenger, and drift from the range that the detector was trained on."""
    parts: dict[str, Part] = {}
    if challenger is not None:
        parts["shadow"] = Shadow(str(config.detector.shadow), challenger, tracker)
    if config.detector.drift and ranges:
        parts["drift"] = watch_drift(DriftMonitor(ranges))
    return [Beside(lambda kind, payload: ledger.append(kind, payload, job=config.name), parts)] if parts else []


def _requeue(config: JobConfig, state: JobState, ledger: Ledger, fleet: Fleet, parts: EngineParts | None) -> EngineRecovery | None:
    """Of a job that we only watch, if it is to be acted on: its engine starts it again without its bad machine."""
    if parts is None or parts.work is None:
        return None
    return EngineRecovery(state, ledger, fleet, parts.work, parts.clock, config.evidence_deadline_s)


def _recovery(config: JobConfig, state: JobState, ledger: Ledger, fleet: Fleet, clock: Clock, parts: EngineParts | None) -> Recovery:
    local = {
        machine.name: LocalMachine(
            Path(machine.local.run_dir) if machine.local.run_dir else None, tuple(Path(path) for path in machine.local.cgroups)
        )
        for machine in config.machines
        if machine.local is not None
    }
    environment = dict(config.environment)
    if config.checkpoint_dir:
        environment["MINDER_CHECKPOINT_DIR"] = config.checkpoint_dir
    if config.step_pattern:
        environment["MINDER_STEP_PATTERN"] = config.step_pattern
    settings = RecoverySettings(
        state_dir=state_dir_of(config),
        rendezvous_address=config.rendezvous_address,
        environment=environment,
        checkpoint_dir=Path(config.checkpoint_dir) if config.checkpoint_dir else None,
        max_restarts=config.policy_config(False).max_restarts,
        evidence_deadline_s=config.evidence_deadline_s,
    )
    actuator: Actuator = LocalActuator(config.name, fleet, local, clock)
    if parts is not None and parts.work is not None:
        actuator = EngineActuator(actuator, parts.work, ledger, config.name)
    return Recovery(state, ledger, fleet, actuator, settings, clock)
