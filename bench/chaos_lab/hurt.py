"""Who is hurt: strikes are carried out, healed and repaired here; processes of the site are kept running, as a supervisor does it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress

from chaos_lab.around import AROUND, minder_command
from chaos_lab.machines import INJECTORS, power_on
from chaos_lab.schedule import KINDS, Strike
from chaos_lab.stage import ChaosStage
from chaos_lab.steps import Steps
from chaos_lab.wound import Wound
from minder.edge.cache.placement import place_backups
from minder.model.errors import MinderError
from minder.model.topology import Parallelism
from minder.record.incidents import kinds
from minder.simulate.lab.machine import LabMachine

__all__ = ["Hurt"]

_RESTART_S = 2.0
_ANSWER_S = 30.0  # so long after a page that no standby is ready, a person gives back what is out
_TOO_FEW = ("no_standby", "group_too_large")  # the second: of several machines that go together
_YOUNG_S = 60.0  # a controller that finds its ledger out of order when it starts may end; one that runs may not


class Hurt:
    """wounds: all so far. ended: controllers that ended by themselves."""

    def __init__(self, stage: ChaosStage, steps: Steps) -> None:
        self.stage, self.steps = stage, steps
        self.wounds: list[Wound] = []
        self.ended: list[str] = []
        self._dead_s: dict[str, float] = {}
        self._paged_s: dict[int, float] = {}  # page that no standby is ready, to when it was seen; infinity: it was answered

    def placed(self) -> dict[int, str]:
        """Rank to machine, by the newest generation."""
        started = self.stage.events(kinds.GENERATION_STARTED)
        return {int(rank): str(machine) for rank, machine in started[-1].payload["rank_machine"].items()} if started else {}

    def barred(self) -> set[str]:
        out: set[str] = set()
        for event in self.stage.events(kinds.BARRED, kinds.UNBARRED):
            (out.add if event.kind == kinds.BARRED else out.discard)(str(event.payload["machine"]))
        return out

    def ready(self) -> list[str]:
        """Standbys that could take a place now, as the status shows them."""
        hurt = {machine for wound in self._open() if wound.faulty for machine in wound.machines}
        rows = self.stage.status().get("machines", ())
        return sorted(row["name"] for row in rows if row["role"] == "standby" and row["name"] not in hurt)

    def strike(self, strike: Strike) -> Wound:
        """Do it. A strike that cannot be had here is a wound without a machine, and says why."""
        kind = KINDS[strike.kind]
        wound = Wound(strike.number, strike.kind, begin_s=time.time(), step=self.steps.step)
        self.wounds.append(wound)
        if strike.kind == "return":
            wound.detail = f"returned {', '.join(self.repair_all()) or 'none'}"
            wound.end_s = time.time()
            return wound
        try:
            machines = self._chosen(kind.target, strike.pick)
            injector = INJECTORS.get(strike.kind) or AROUND[strike.kind]
            wound.machines = tuple(machine.name for machine in machines)
            wound.faulty, wound.stops = kind.faulty, kind.stops
            wound.detail, wound.undo = injector(self.stage, machines, self.steps.step)
        except (MinderError, OSError, LookupError) as error:
            wound.detail, wound.machines, wound.faulty, wound.stops = f"not struck: {error}", (), False, False
            wound.end_s = time.time()
            return wound
        if kind.heal_s is not None:
            wound.heal_at_s = time.time() + kind.heal_s
        elif not kind.faulty:
            wound.end_s = time.time()
        return wound

    def look(self, is_over: bool) -> None:
        """Heal what is due, start controllers that ended."""
        for wound in self.wounds:
            if wound.heal_at_s is not None and time.time() >= wound.heal_at_s:
                self._heal(wound)
        if not is_over:
            self._keep_controllers()
            self._answer()

    def _answer(self) -> None:
        """As the person whom a page calls: more machines were hit than stood by, and the job stands until one of them is given back."""
        now_s = time.time()
        for event in self.stage.events(kinds.DECISION):
            if event.payload.get("action") == "page" and event.payload.get("reason") in _TOO_FEW:
                self._paged_s.setdefault(event.id, now_s)
        due = [name for name, seen_s in self._paged_s.items() if now_s - seen_s >= _ANSWER_S]
        if due and self.barred():
            self._paged_s |= dict.fromkeys(due, math.inf)
            self.repair_all()

    def let_go(self, wounds: Sequence[Wound]) -> None:
        """The job goes on: what hit a machine that was not evicted is over."""
        out = self.barred()
        for wound in wounds:
            if wound.end_s is None and not set(wound.machines) & out:
                self._heal(wound)

    def heal_all(self) -> None:
        for wound in self._open():
            self._heal(wound)

    def repair_all(self) -> list[str]:
        """Every machine that is out is repaired and given back; their labels."""
        out = self.barred()
        found = [machine for machine in self.stage.lab.all_machines if machine.name in out]
        for machine in found:
            for wound in self._open():
                if machine.name in wound.machines:
                    self._heal(wound)
            self._power_on(machine)
            minder_command(self.stage, "machine", "return", machine.name, "--force", "--note", "repaired")
        return [machine.place.label for machine in found]

    def _chosen(self, target: str, pick: float) -> tuple[LabMachine, ...]:
        """Raises LookupError where no machine can be hit."""
        if target == "none":
            return ()
        hurt = {machine for wound in self._open() for machine in wound.machines}
        by_name = {machine.name: machine for machine in self.stage.lab.all_machines}
        placed = self.placed()
        names = self.ready() if target == "standby" else [placed[rank] for rank in sorted(placed)]
        names = [name for name in names if name not in hurt]
        if not names:
            raise LookupError("no machine that could be hit")
        name = names[int(pick * len(names))]
        if target != "pair":
            return (by_name[name],)
        rank = next(rank for rank, machine in placed.items() if machine == name)
        return by_name[name], by_name[placed[place_backups(Parallelism(data=len(placed)), placed)[rank]]]

    def _open(self) -> list[Wound]:
        return [wound for wound in self.wounds if wound.end_s is None]

    def _heal(self, wound: Wound) -> None:
        wound.heal_at_s = None
        wound.end_s = time.time()
        with suppress(MinderError, OSError):
            wound.undo()
        if KINDS[wound.kind].lost:
            for machine in self.stage.lab.all_machines:
                if machine.name in wound.machines:
                    self._power_on(machine)

    def _power_on(self, machine: LabMachine) -> None:
        self.stage.lost.discard(machine.name)
        power_on(self.stage, machine)

    def _keep_controllers(self) -> None:
        for name in sorted(self.stage.wanted):
            process = self.stage.controllers[name]
            if process.poll() is None:
                self._dead_s.pop(name, None)
                continue
            since_s = self._dead_s.setdefault(name, time.time())
            if time.time() - since_s < _RESTART_S or self.stage.events(kinds.JOB_ENDED):
                continue
            young = since_s - self.stage.started_s.get(name, 0.0) < _YOUNG_S
            if not (young and any(wound.kind.startswith("ledger") for wound in self._open())):
                log = (self.stage.folder / f"{name}.log").read_text(errors="replace").splitlines()
                self.ended.append(f"{name} with status {process.returncode}: {' / '.join(log[-2:])[-300:]}")
            self.stage.start_one(name)
