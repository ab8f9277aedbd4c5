"""A wired job: brought up or taken up where an earlier controller stopped, watched to its end, closed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from minder.act.controller.context import isolated_group
from minder.act.controller.engine.work import EngineRecovery
from minder.act.controller.reading.attachment import Attachment
from minder.act.controller.recover import Recovery
from minder.act.controller.reporting.exporter import Exporter
from minder.act.controller.state import JobState
from minder.act.controller.step import Controller
from minder.act.recovery.generation_plan import replace_machines
from minder.act.recovery.restart import await_waiting, why_not_waiting
from minder.app.admission import registration
from minder.app.engine import EngineParts
from minder.app.watch_folder import WatchFolder
from minder.config import JobConfig
from minder.diagnose.scoring.ray_scoring import RayScoring
from minder.model.clock import Clock
from minder.model.decision import Size
from minder.model.errors import BadInputError, ConfigError, RecoveryError
from minder.model.replicas import Replicas
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.endings import begin_run
from minder.wire.fleet import Fleet

__all__ = ["App"]


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
        if shared := self.config.shared_tokens():
            remedy = "see `minder token machine --help`, then set machine_token_dir"
            self.controller.say(f"{' and '.join(shared)} in job.toml: one token for all machines, read for one more version: {remedy}")
        name, recovery = self.config.name, self.recovery
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
        lines += [line for line in [self.controller.take_up_held()] if line]
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
        end_s = self.clock.monotonic_s() + seconds
        named = {machine.name for machine in self.config.machines if machine.agent or machine.launcher}
        wanted = (set(self.state.rank_machine.values()) or set(self.fleet.machines)) & named
        while self.clock.monotonic_s() < end_s:
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
        placed = self._without_unproven(placed, late)
        if not late:
            return placed
        refusals = self.fleet.refusals()
        ready = self.controller.standbys()
        ready = [machine for machine in ready if machine not in placed.values()]
        if len(ready) < len(late):
            if fewer := self._fewer(placed, late, ready):
                return fewer
            for machine in late:
                if machine in refusals:
                    remedy = "mend its address, its token file or [tls] in job.toml"
                    raise RecoveryError(f"{machine} refuses us: {refusals[machine]}; {remedy}")
            why = why_not_waiting(self.fleet.views().get(late[0]), self.clock.now_s()) or "its worker came to the barrier too late"
            text = f"{late[0]} is not ready after {self.config.start_deadline_s:.0f} s and no standby is: {why}"
            raise RecoveryError(f"{text}; look at its launcher's log")
        return replace_machines(placed, late, ready)

    def _fewer(self, placed: dict[int, str], late: Sequence[str], ready: Sequence[str]) -> dict[int, str] | None:
        """The job begins with fewer machines where the site allows it and its checkpoint is read by so few; None where it does not."""
        sizes = self.controller.sizes(self.clock.now_s())
        if sizes is None or sizes.refused:
            return None
        try:
            refit = Replicas.of(sizes.parallelism, placed).refit(late, ready)
        except BadInputError:
            return None
        if refit.machines < sizes.least:
            return None
        text = f"{', '.join(late)} did not come and no standby is ready: the job {Size(refit.machines, sizes.full).words}"
        self.ledger.append(kinds.NOTE, {"text": text}, job=self.config.name)
        self.controller.say(text)
        return dict(refit.rank_machine)

    def _without_unproven(self, placed: dict[int, str], late: list[str]) -> dict[int, str]:
        """A machine that was evicted again and again gives its place to a standby. Where none is left for it the person's configuration
        stands, and the ledger says so: a job that does not start at all is worse."""
        for machine, why in self.controller.pool.unproven().items():
            if machine not in placed.values() or machine in late:
                continue
            ready = [name for name in self.controller.standbys() if name not in placed.values()]
            enough = len(ready) > len(late)
            text = f"{why}: {ready[0] if enough else 'it'} {'takes its place' if enough else 'starts all the same, no standby is left'}"
            self.ledger.append(kinds.NOTE, {"text": text}, job=self.config.name)
            placed = replace_machines(placed, [machine], ready[:1]) if enough else placed
        return placed
