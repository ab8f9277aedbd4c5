"""Plays a schedule on one lab: strikes, heals, repairs, looks; a row for each round, and one for the end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from chaos_lab.account import ettr, recoveries
from chaos_lab.earlier import losses_of
from chaos_lab.hurt import Hurt
from chaos_lab.judge import Played, by_incident, judge
from chaos_lab.schedule import KINDS, Strike, rounds
from chaos_lab.stage import FLUSH_EVERY, ChaosStage, Size
from chaos_lab.steps import Steps, longest_stand, restarts
from chaos_lab.wound import Wound
from minder.model.errors import LabError
from minder.record.incidents import fold_incident, kinds
from minder.simulate.lab.reference import compare_losses, reference_losses

__all__ = ["Standing", "play"]

_LOOK_S = 0.3
_AHEAD = 20  # steps between the order to end and the end
_EVEN = 25  # the job ends at a multiple of it, so that undisturbed runs are found again
_RESUMED = 3  # steps after which a job goes on
_UNDISTURBED_S = 3600.0
_OPEN_S = 40.0  # for so long an incident that is open is waited for
_USUAL_LOAD = 8.0  # processes that want one processor; a lab of nine machines by itself brings it to a few while it starts
_READY = 2  # standbys, before the next round

Note = Callable[[dict[str, Any]], None]


class Standing(Exception):
    """The job stands for longer than it may."""


def play(
    schedule: Sequence[Strike], size: Size, out: Path, seed: int, note: Note, *, whole: bool = True, earlier: Sequence[Path] = ()
) -> dict[str, Any]:
    """All strikes, then the end of the job. `note` gets a row for each round; the last row is returned: {end, wrong, broken, ...}.
    whole: False ends with the first round after which a rule is broken. earlier: folders of parts that were killed, whose losses are
    compared too.

    Raises LabError where no lab can be had.
    """
    with ChaosStage(size, out, seed) as stage:
        run = Run(stage)
        stage.start_controllers()
        end = "whole"
        try:
            run.wait("the first steps", lambda: run.steps.step >= 5)
            first_s = time.time()
            for strikes in rounds(schedule):
                if time.time() - first_s > size.for_s:
                    break
                row = run.round(strikes)
                note(row)
                if row["wrong"] and not whole:
                    return run.summary("cut", out.parent / "undisturbed", earlier)
            run.finish()
        except Standing as error:
            end = f"standing: {error}"
        return run.summary(end, out.parent / "undisturbed", earlier)


class Run:
    """One job on one stage."""

    def __init__(self, stage: ChaosStage) -> None:
        self.stage = stage
        self.steps = Steps(stage.output / "losses.jsonl")
        self.hurt = Hurt(stage, self.steps)
        self.began_s = time.time()
        self._known: set[str] = set()  # what was said to be wrong already
        self._over = False

    @property
    def stand_s(self) -> float:
        """The longest allowed recovery, longer where the machine is busy with other things and steps take longer."""
        usual_s = self.stage.size.step_seconds
        busy = os.getloadavg()[0] / (os.cpu_count() or 1) / _USUAL_LOAD
        return self.stage.size.stand_s * max(1.0, self.steps.typical_s(usual_s) / usual_s, busy)

    @property
    def _enough(self) -> int:
        return min(_READY, self.stage.size.standbys)

    def round(self, strikes: Sequence[Strike]) -> dict[str, Any]:
        """Wait, strike, wait until the job has settled; what came of it."""
        self.wait_s(strikes[0].gap_s)
        self.wait("steps again", lambda: self._steps_since(time.time() - 5 * self._step_s()) > 1 and not self._recovers())
        if not self._staffed():
            with suppress(Standing):
                self.wait("standbys", self._staffed)
        began_s, wounds = time.time(), []
        for strike in strikes:
            if strike.joined:
                self.wait_s(strike.gap_s)
            wounds.append(self.hurt.strike(strike))
        standing = ""
        try:
            self.wait("settled", lambda: self._settled(wounds))
        except Standing as error:
            standing = str(error)
        self.hurt.let_go(wounds)
        row = self._row(strikes, wounds, began_s, standing)
        if standing:
            row["wrong"].append(standing)
        return row

    def finish(self) -> None:
        """Heal all, and let the job come to its end."""
        self.hurt.heal_all()
        self.wait("steps again", lambda: not self._recovers())
        self.stage.stop_job_at(_even(self.steps.step + _AHEAD))
        self.wait("the end of the job", lambda: bool(self.stage.events(kinds.JOB_ENDED)), 3.0)
        self._over = True

    def wait_s(self, seconds: float) -> None:
        end_s = time.time() + seconds
        while time.time() < end_s:
            self._look()

    def wait(self, what: str, is_so: Callable[[], bool], times: float = 1.0) -> None:
        """Raises Standing where it does not come within the longest allowed recovery, counted anew whenever the job steps."""
        begun_s = time.time()
        while not is_so():
            self._look()
            now_s = time.time()
            stands_s = now_s - max(begun_s, self.steps.last_s or 0.0)
            # A job that steps and does not come to what is waited for is given longer, and not for ever.
            if stands_s > times * self.stand_s or now_s - begun_s > 3 * times * self.stand_s:
                raise Standing(f"no {what} within {now_s - begun_s:.0f} s")

    def _staffed(self) -> bool:
        """Whether there are enough standbys; where there are not, machines that are out are given back."""
        if len(self.hurt.ready()) >= self._enough:
            return True
        self.hurt.repair_all()
        return False

    def _look(self) -> None:
        time.sleep(_LOOK_S)
        self.steps.look()
        self.stage.events()
        self.hurt.look(self._over)

    def _step_s(self) -> float:
        return self.steps.typical_s(self.stage.size.step_seconds)

    def _steps_since(self, time_s: float) -> int:
        return sum(item.time_s > time_s for item in self.steps.taken[-100:])

    def _settled(self, wounds: Sequence[Wound]) -> bool:
        """What was to be healed is healed, the job has gone on, and nothing is under way."""
        if any(wound.heal_at_s is not None for wound in wounds):
            return False
        again_s = max((restart.time_s for restart in restarts(self.steps.taken)), default=0.0)
        gone_on = all(wound.begin_s < again_s for wound in wounds if wound.stops)  # what came after, and stops nothing, needs no restart
        since_s = max(again_s, *(wound.begin_s for wound in wounds))
        placed = self.hurt.placed()
        out = all(machine not in placed for wound in wounds if KINDS[wound.kind].gone for machine in wound.machines)
        return gone_on and out and self._steps_since(max(since_s, time.time() - 60.0)) >= _RESUMED and not self._recovers()

    def _recovers(self) -> bool:
        """An incident is open. One that only asks for a person may stay so: after a while it is not waited for."""
        found = [fold_incident(events) for events in by_incident(self.stage.events()).values()]
        now_s = time.time()
        return any(item.state in ("acting", "recovering") or (item.state == "open" and now_s - item.opened_s < _OPEN_S) for item in found)

    def _row(self, strikes: Sequence[Strike], wounds: Sequence[Wound], began_s: float, standing: str) -> dict[str, Any]:
        now_s, taken = time.time(), self.steps.look()
        lost = [restart.lost for restart in restarts(taken) if restart.time_s > began_s]
        wrong = [line for lines in judge(self._played(began_s)).values() for line in lines if line not in self._known]
        self._known.update(wrong)
        names = {machine.name: machine.place.label for machine in self.stage.lab.all_machines}
        found = recoveries(self.stage.events(), began_s - 5.0, now_s)
        for item in found:
            item |= {"machines": [names.get(name, name) for name in item["machines"]]}
            item |= {"evicted": [names.get(name, name) for name in item["evicted"]]}
        return {
            "numbers": [strike.number for strike in strikes],
            "kinds": [strike.kind for strike in strikes],
            "hit": [names[machine] for wound in wounds for machine in wound.machines],
            "detail": [wound.detail for wound in wounds],
            "at_s": round(began_s - self.began_s),
            "step": self.steps.step,
            "seconds": round(now_s - began_s),
            "wrong": wrong,
            "steps_lost": max(lost, default=0),
            "stood_s": round(longest_stand(taken, began_s, now_s), 1),
            "step_s": round(self._step_s(), 2),
            "load": round(os.getloadavg()[0], 1),
            "recoveries": found,
        }

    def _played(self, since_s: float | None = None, loss_error: str = "") -> Played:
        taken = self.steps.taken
        first_s = taken[0].time_s if taken else self.began_s
        begin_s = first_s if since_s is None else since_s
        end_s = taken[-1].time_s if self._over and taken else time.time()
        stood_s = longest_stand(taken, begin_s, end_s)
        return Played(
            self.stage.events(), taken, self.hurt.wounds, FLUSH_EVERY, self.stand_s, stood_s, self._over, loss_error, self.hurt.ended
        )

    def summary(self, end: str, references: Path, earlier: Sequence[Path]) -> dict[str, Any]:
        """The row of the whole: the losses are compared now, at the price of an undisturbed run of as many steps."""
        events, now_s = self.stage.events(), time.time()
        self.stage.stop_controllers()
        error = self._compare(references, earlier) if end == "whole" else "" if end == "cut" else "the job did not come to its end"
        broken = judge(self._played(loss_error=error))
        wrong = [line for lines in broken.values() for line in lines]
        return {
            "end": end, "faults": len(self.hurt.wounds), "steps": self.steps.step, "seconds": round(now_s - self.began_s),
            "restarts": len(restarts(self.steps.taken)), "ettr": ettr(events, now_s), "wrong": wrong, "broken": list(broken),
            "wounds": [wound.to_json() for wound in self.hurt.wounds],
        }  # fmt: skip

    def _compare(self, references: Path, earlier: Sequence[Path]) -> str:
        outcome = [str(event.payload.get("outcome")) for event in self.stage.events(kinds.JOB_ENDED)]
        if outcome[-1:] != ["finished"]:
            return f"the job ended as {outcome[-1:]}"
        size, seed = self.stage.size, self.stage.options.seed

        def undisturbed(steps: int) -> Path:
            return reference_losses(seed, steps, size.machines, references, deadline_s=_UNDISTURBED_S, alone=True)

        try:
            found = compare_losses(self.stage.output, undisturbed(self.steps.step))
            if not found.equal:
                return found.detail
            for folder, steps in losses_of(earlier).items():
                part = compare_losses(folder, undisturbed(max(self.steps.step, _even(steps))), whole=False)
                if not part.equal:
                    return f"{part.detail} ({folder})"
        except LabError as error:
            return str(error)
        return ""


def _even(step: int) -> int:
    """The next step at which a job may end."""
    return -(-step // _EVEN) * _EVEN
