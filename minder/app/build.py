"""The only wiring: a configuration becomes a controller with all its stages.

`build` reads from top to bottom: the base (folders, ledger, machines, engine), then a builder for each wing: diagnosis, intake, action.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from minder import __version__
from minder.act.actuators.contract import Actuator
from minder.act.actuators.local import LocalActuator, LocalMachine
from minder.act.controller.context import ContextMaker, Sources, context_maker, isolated_group, standing_of, whole_context
from minder.act.controller.diagnosis.beside import Beside
from minder.act.controller.diagnosis.diagnosing import Diagnosing
from minder.act.controller.diagnosis.held import HeldJob
from minder.act.controller.diagnosis.pair_news import PairNews
from minder.act.controller.diagnosis.pair_rounds import Paths
from minder.act.controller.diagnosis.replaying import Replaying
from minder.act.controller.engine.work import EngineActuator, EngineRecovery
from minder.act.controller.orders.hung import HungJob
from minder.act.controller.orders.job_work import JobWork
from minder.act.controller.orders.skipping import Skipping
from minder.act.controller.orders.updating import Updating
from minder.act.controller.reading.attachment import Attachment
from minder.act.controller.reading.hearing import Inbox
from minder.act.controller.reading.tracing import StepTraces
from minder.act.controller.reading.watched import WatchedJob
from minder.act.controller.recover import Recovery, RecoverySettings
from minder.act.controller.reporting.exporter import Collects, Exporter
from minder.act.controller.reporting.gauges import Gauges, Sight
from minder.act.controller.reporting.live import LiveWindows
from minder.act.controller.reporting.shadow import Part, Shadow, ShadowRule, watch_drift
from minder.act.controller.stages import Stages
from minder.act.controller.standbys.growth import Growth
from minder.act.controller.standbys.pool_size import PoolSize
from minder.act.controller.standbys.standby_tests import StandbyProbing
from minder.act.controller.state import JobState, fold_job
from minder.act.controller.step import Controller
from minder.act.policy.context import Sizes
from minder.act.policy.policy import Policy
from minder.app.admission import Admission, with_joined
from minder.app.engine import EngineParts, wire_engine
from minder.app.feeds import build_source, open_aligner, open_recorder, source_words
from minder.app.job import App
from minder.app.pairing import job_address
from minder.app.watch_folder import WatchFolder, open_watch_folder
from minder.config import JobConfig
from minder.diagnose.detectors.contract import Detector
from minder.diagnose.detectors.drift import DriftMonitor
from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.load_detector import detector_maker, load_detector, open_model
from minder.diagnose.scoring.ray_scoring import RayScoring, open_scoring
from minder.diagnose.verdicts.fail_slow import DeclineRule
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.live import live_rules
from minder.diagnose.verdicts.signals import LinkLimits
from minder.diagnose.verdicts.telemetry import GatedRule, TelemetryRule
from minder.diagnose.verdicts.trigger import TriggerRule
from minder.edge.signals.xid import load_xid_rules
from minder.ingest.sources.recorder import Recorder
from minder.ingest.sources.spoken import SpokenSource
from minder.model.clock import Clock, SystemClock
from minder.model.errors import BadInputError, ConfigError
from minder.model.evidence import Scores
from minder.model.observation import Rule
from minder.model.private import make_private
from minder.model.resources import default_state_dir
from minder.model.topology import Topology
from minder.record.incidents import Ledger, find_ledger
from minder.record.registry.folder import Model
from minder.wire.fleet import Fleet

__all__ = ["App", "build", "state_dir_of"]


def state_dir_of(config: JobConfig) -> Path:
    return Path(config.state_dir) if config.state_dir else default_state_dir()


def open_page(config: JobConfig, parts: tuple[Collects, ...]) -> Callable[[], Exporter] | None:
    """How to open the address of a controller's own metrics, None where the configuration asks for none."""
    address = config.metrics.address
    if address is None:
        return None
    return lambda: Exporter(*address, config.metrics.token(), parts, {"training_job": config.name})


@dataclass(frozen=True, slots=True)
class _Base:
    """What everything else of a job is wired to. watched, folder: None of a job that launchers of ours start; engine: None without one."""

    config: JobConfig
    admission: Admission
    topology: Topology
    state: JobState
    state_dir: Path
    ledger: Ledger
    fleet: Fleet
    wake: threading.Event
    clock: Clock
    act: bool
    engine: EngineParts | None
    watched: WatchedJob | None
    folder: WatchFolder | None

    @property
    def launched(self) -> bool:
        return self.watched is None

    @property
    def sizes(self) -> Sizes | None:
        """How small the job may become; None where it keeps its size."""
        least, engine, here = self.config.min_machines, self.config.engine, len(self.topology.machines)
        full = max(here, engine.machines or 0) if engine is not None else here
        return None if least is None or not self.launched else Sizes(least, full, self.topology.parallelism)


@dataclass(frozen=True, slots=True)
class _Diagnosis:
    """rules: makes the rules as they are at the start, for a clock that was set."""

    tracker: JobTracker
    judge: Judge
    rules: Callable[[], list[Rule]]

    def scores(self) -> Scores | None:
        """Of the rules that are in force now."""
        return next((rule.scores for rule in self.judge.rules if isinstance(rule, GatedRule)), None)

    def alarm(self) -> str:
        """The job's own pace first; then a machine's."""
        return next(
            (rule.alarm for kind in (TriggerRule, DeclineRule) for rule in self.judge.rules if isinstance(rule, kind) and rule.alarm), ""
        )


@dataclass(frozen=True, slots=True)
class _Intake:
    source: SpokenSource
    windows: LiveWindows
    recorder: Recorder | None
    attachment: Attachment | None


@dataclass(frozen=True, slots=True)
class _Action:
    policy: Policy
    context: ContextMaker
    recovery: Recovery | None
    requeue: EngineRecovery | None
    hung: HungJob | None
    growth: Growth | None
    diagnosing: Diagnosing | None
    replaying: Replaying | None
    beside: Beside | None
    updates: Updating | None
    skipping: Skipping | None


def build(
    config: JobConfig, *, act: bool = False, clock: Clock | None = None, ledger: Ledger | None = None, shows: tuple[Collects, ...] = (),
    away_s: float = 120.0,
) -> App:  # fmt: skip
    """Wire one job. Evictions stay a dry run unless `act`. A job without launchers is only watched. The ledger, if none is given, is
    beside the job's state, unless $MINDER_LEDGER says otherwise. shows: what its metrics show besides its own. away_s: without any process
    for so long, a watched job is over."""
    launched = _is_launched(config)
    model, scoring = open_model(config.detector.uri), open_scoring(config.scoring)
    base = _open_base(config, launched, act, clock or SystemClock(), ledger)
    diagnosis = _build_diagnosis(base, model, scoring)
    intake = _build_intake(base, diagnosis, away_s)
    action = _build_action(base, diagnosis)
    stages = Stages(
        fleet=base.fleet,
        source=intake.source,
        windows=intake.windows,
        judge=diagnosis.judge,
        policy=action.policy,
        recovery=action.recovery or action.requeue,
        tracker=diagnosis.tracker,
        context=action.context,
        recorder=intake.recorder,
        scores=diagnosis.scores,
        watched=base.watched,
        attachment=intake.attachment,
        unread=lambda: intake.source.failures,
        inbox=Inbox(base.ledger, base.config.name, intake.source.drain),
        engine=action.requeue or (base.engine.work if base.engine is not None else None),
        parallelism=base.topology.parallelism,
        traces=StepTraces(base.fleet, base.clock.now_s),
        move_clock=_clock_mover(base, diagnosis, intake.windows),
        admits=base.admission if launched else None,
        standby_probing=StandbyProbing(config.standby.chosen, config.standby.probe_every_s),
        alarm=diagnosis.alarm,
        unscored=scoring.trouble if scoring is not None else str,
        hung=action.hung,
        pair_news=PairNews(base.state, base.ledger),
        growth=action.growth,
        updates=action.updates,
        skipping=action.skipping,
        pool_size=_pool_size(base) if launched else None,
        sizes=(base.sizes.least, base.sizes.full) if base.sizes is not None else (0, 0),
        diagnosing=action.diagnosing,
        replaying=action.replaying,
        beside=action.beside,
        standing=standing_of(diagnosis.judge),
    )
    controller = Controller(base.state, stages, base.ledger, base.clock, base.state_dir)
    intake.windows.accused = controller.accused
    return App(
        base.config,
        controller,
        base.fleet,
        base.ledger,
        action.recovery,
        base.state,
        base.wake,
        base.clock,
        open_page(base.config, (*_measures(base, stages), *shows)),
        engine=base.engine,
        requeue=action.requeue,
        scoring=scoring,
        attachment=intake.attachment,
        folder=base.folder,
    )


def _open_base(config: JobConfig, launched: bool, act: bool, clock: Clock, ledger: Ledger | None) -> _Base:
    """Folders, the ledger and what it says of the job, its machines, its engine."""
    state_dir = make_private(state_dir_of(config))
    ledger = ledger or Ledger(find_ledger(None, state_dir))
    past = ledger.events(job=config.name)
    state = fold_job(config.name, past)
    config = with_joined(config, past) if state.is_under_way else config
    admission, wake = Admission(config), threading.Event()
    topology = admission.topology()
    fleet = Fleet(config.endpoints(), on_signal=wake.set, tls=config.tls.context())
    engine = wire_engine(config, ledger, clock, act=act, restarts=not launched)
    watched, folder = None, None
    if not launched:
        watched = WatchedJob(engine.watch.engine.job_name if engine else config.name, topology.rank_machine)
        folder = open_watch_folder(config)
        state, state_dir = JobState(config.name, rank_machine=dict(topology.rank_machine)), folder.path  # its state is what is seen
    return _Base(config, admission, topology, state, state_dir, ledger, fleet, wake, clock, act, engine, watched, folder)


def _build_diagnosis(base: _Base, model: Model, scoring: RayScoring | None) -> _Diagnosis:
    """What the job is doing, and the rules, telemetry's detector among them."""
    tracker = JobTracker()
    rules = _rules_maker(base.config, model, tracker, base.ledger, scoring)
    return _Diagnosis(tracker, Judge(rules()), rules)


def _build_intake(base: _Base, diagnosis: _Diagnosis, away_s: float) -> _Intake:
    """Where samples come from, and what they become; of a watched job, what is said of that."""
    config, admission = base.config, base.admission
    windows = LiveWindows(open_aligner(admission), base.state_dir / "live.json", diagnosis.scores)
    source = SpokenSource(build_source(admission))
    recorder = open_recorder(admission, base.launched and base.state.is_under_way)
    attachment = None
    if not base.launched:
        has_agents = any(machine.agent for machine in config.machines)
        attachment = Attachment(config.name, config.telemetry.interval_s, source_words(config), away_s, has_agents=has_agents)
        attachment.late_s = lambda: source.late_s
    admission.on_admit.append(lambda grown, joined: windows.watch(admission.names))
    return _Intake(source, windows, recorder, attachment)


def _build_action(base: _Base, diagnosis: _Diagnosis) -> _Action:
    """What is decided, and what carries it out: our own launchers, or the engine that starts a watched job again."""
    config, policy = base.config, Policy(base.config.policy_config(base.act))
    work = JobWork(config.checkpoint_dir, config.total_steps, config.checkpoints, base.sizes, config.checkpoints_any_size)
    sources = Sources(diagnosis.tracker, base.fleet, base.ledger)
    context = context_maker(config.name, base.topology, policy.config, sources, base.watched, work)
    watch = None if base.engine is None else base.engine.watch
    updates, skipping = None, None
    if base.launched:
        updates = Updating(base.state, base.ledger, base.fleet, policy.config, base.clock, work, config.checkpoints_compatible)
        skipping = Skipping(base.state, base.ledger, base.fleet, policy.config, base.clock, work)
        context = skipping.in_context(updates.in_context(context))
    context = whole_context(context, watch, not base.launched, policy.config, standing_of(diagnosis.judge))
    recovery = _recovery(base) if base.launched else None
    if recovery is not None:
        recovery.updates, recovery.skipping = updates, skipping
    requeue = None if base.launched else _requeue(base)
    restarts = base.launched or (requeue is not None and config.requeues)
    hung = HungJob(base.state, base.ledger, policy.config) if restarts else None
    growth = None if base.sizes is None else Growth(base.state, base.ledger, policy.config, config.grow_after_s)
    diagnosing, replaying, beside = None, None, None
    if recovery is not None:
        beside = Beside(base.state, base.ledger, base.fleet, base.clock, policy.config.ladder)
        paths = Paths(_address_maker(base.admission), base.topology.domains)
        held = HeldJob(base.state, base.ledger, policy.config, base.clock, context)
        diagnosing = Diagnosing(held, base.fleet, recovery, paths)
        replaying = Replaying(held, base.fleet, recovery, base.topology.parallelism, config.replay.settings)
    return _Action(policy, context, recovery, requeue, hung, growth, diagnosing, replaying, beside, updates, skipping)


def _address_maker(admission: Admission) -> Callable[[str], str]:
    """A machine's address on the job's network; it raises BadInputError where there is none."""

    def address(machine: str) -> str:
        given = {item.name: item.job_address for item in admission.config.machines}
        found = next((item for item in admission.config.endpoints() if item.machine == machine), None)
        if found is None:
            raise BadInputError(f"{machine} is not known any more")
        return job_address(found, given.get(machine))

    return address


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
    make_detector = detector_maker(model) if scoring is None else scoring.maker(config.name, model)
    stages_of = {machine: topology.stages_of(machine) for machine in topology.machines}
    shadow = config.detector.shadow
    links = LinkLimits(config.signals.link_flaps, config.signals.link_flap_window_s, config.signals.link_down_s)
    make_challenger = None if shadow is None else load_detector(shadow)  # read once: rules are made again when the clock is set

    def rules() -> list[Rule]:
        telemetry = GatedRule(TelemetryRule(make_detector(stages_of)), tracker)
        found = live_rules(tracker, telemetry, xid_rules, config.telemetry.interval_s, topology.parallelism, links)
        challenger = None if make_challenger is None else make_challenger(stages_of)
        return [*found, *_beside(config, tracker, ledger, challenger, model.ranges)]

    return rules


def _clock_mover(base: _Base, diagnosis: _Diagnosis, windows: LiveWindows) -> Callable[[float], None]:
    """When the wall clock is set, what is known of the job moves with it; rules, detector and windows begin anew."""

    def move(by_s: float) -> None:
        diagnosis.tracker.move(by_s)
        if base.watched is not None:
            base.watched.move(by_s)
        diagnosis.judge.restart(diagnosis.rules(), by_s)
        windows.restart(open_aligner(base.admission))

    return move


def _measures(base: _Base, stages: Stages) -> tuple[Collects, ...]:
    """The controller's own metrics."""
    config, policy = base.config, base.config.policy_config(base.act)
    sight = Sight(
        base.state, stages.measures, base.fleet.views, base.fleet.refusals, lambda now_s: base.ledger.history(config.name, now_s),
        policy, SystemClock(),
        agents=base.admission.agents,
        silent_s=max(30.0, 3.0 * config.telemetry.interval_s),
        watches=not base.launched,
        largest_group=isolated_group(config.topology(), policy),
        version=__version__,
    )  # fmt: skip
    return sight.measures.registry, Gauges(sight)


def _beside(
    config: JobConfig, tracker: JobTracker, ledger: Ledger, challenger: Detector | None, ranges: Mapping[str, tuple[float, float]]
) -> list[ShadowRule]:
    """What looks on and never decides: the challenger, and drift from the range that the detector was trained on."""
    parts: dict[str, Part] = {}
    if challenger is not None:
        parts["shadow"] = Shadow(str(config.detector.shadow), challenger, tracker)
    if config.detector.drift and ranges:
        parts["drift"] = watch_drift(DriftMonitor(ranges))
    return [ShadowRule(name, lambda kind, payload: ledger.append(kind, payload, job=config.name), part) for name, part in parts.items()]


def _pool_size(base: _Base) -> PoolSize:
    config, work = base.config, base.engine.work if base.engine is not None else None
    return PoolSize(base.state, base.ledger, base.clock, base.topology.domains, config.pool, work=work, least=config.min_machines)


def _requeue(base: _Base) -> EngineRecovery | None:
    """Of a job that we only watch, if it is to be acted on: its engine starts it again without its bad machine."""
    parts = base.engine
    if parts is None or parts.work is None:
        return None
    return EngineRecovery(base.state, base.ledger, base.fleet, parts.work, parts.clock, base.config.evidence_deadline_s)


def _recovery(base: _Base) -> Recovery:
    config, parts = base.config, base.engine
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
    if config.checkpoints == "memory":
        environment["MINDER_PARALLELISM"] = json.dumps(asdict(base.topology.parallelism))
    settings = RecoverySettings(
        state_dir=state_dir_of(config),
        rendezvous_address=config.rendezvous_address,
        environment=environment,
        checkpoint_dir=Path(config.checkpoint_dir) if config.checkpoint_dir else None,
        max_restarts=config.policy_config(False).max_restarts,
        evidence_deadline_s=config.evidence_deadline_s,
        late_deadline_s=config.start_deadline_s,
        parallelism=None if base.sizes is None else base.sizes.parallelism,
        full_machines=0 if base.sizes is None else base.sizes.full,
        machine_environment={name: {"MINDER_DOMAIN": json.dumps(found)} for name, found in base.topology.domains.items() if found},
    )
    actuator: Actuator = LocalActuator(config.name, base.fleet, local, base.clock)
    if parts is not None and parts.work is not None:
        actuator = EngineActuator(actuator, parts.work, base.ledger, config.name)
    return Recovery(base.state, base.ledger, base.fleet, actuator, settings, base.clock)
