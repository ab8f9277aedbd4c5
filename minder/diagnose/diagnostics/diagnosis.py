"""What the tests of a whole job say together: which machine has a fault, what no machine of its own has, what is not judged. Pure.

The rules:

- A fault that the probe saw by itself (a wrong product, a full disk, a lost GPU) counts at once. One that only a comparison shows (a clock,
  a hash, a count of errors) counts where the same probe shows it twice in a row: one late answer is no fault.
- A probe that fails on half of the machines, and on two at least, speaks of what they share: it names no machine.
- A machine that is slow is said aloud, and named for no crash: slowness is no reason why a process ends. Where the job was stopped because
  a machine is slow (`slow`), a second look that shows the same names it.
- What said nothing is said too. It is never a pass, and never a fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from minder.model.probes import ProbeJudgement, ProbeResult

__all__ = ["Diagnosis", "TestRound", "conclude", "doubtful"]

_MOST_SHOWN = 3
_JUDGED = ("pass", "slow", "fail")


@dataclass(frozen=True, slots=True)
class TestRound:
    """One machine's probes of one round (1, or 2: what was measured again)."""

    __test__ = False  # no test of pytest's

    machine: str
    number: int
    results: tuple[ProbeResult, ...]
    judgements: tuple[ProbeJudgement, ...]

    def own_word(self, probe: str) -> bool:
        """Whether the probe saw the fault by itself."""
        return any(item.probe == probe and item.state == "failed" for item in self.results)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """failed: machine to the probes that found a fault of its own. shared: probe to the machines that it fails on, too many for a fault
    of theirs. unconfirmed: machine to faults that a second look did not show; once: to those that had no second look, or none that was
    judged. passed: probes that passed wherever they apply. unjudged:
    probe to the number of machines on which it is not judged. untested: machine to why nothing is known of it."""

    machines: int
    failed: Mapping[str, tuple[ProbeJudgement, ...]] = field(default_factory=dict)
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unconfirmed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    once: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    slow: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    passed: frozenset[str] = frozenset()
    unjudged: Mapping[str, int] = field(default_factory=dict)
    untested: Mapping[str, str] = field(default_factory=dict)

    def words(self) -> str:
        """One line: faults first, then what passed, then what is not known.

        >>> Diagnosis(6, passed=frozenset({"disk"})).words()
        'all tests passed on 6 machines'
        """
        parts = [
            f"{machine} {'fails' if item.verdict == 'fail' else 'is slow in'} {item.probe}: {item.reason}"
            for machine, items in self.failed.items()
            for item in items
        ]
        parts += [f"{probe} fails on {len(names)} of {self.machines} machines: no machine's own" for probe, names in self.shared.items()]
        parts += [f"{machine} is slow in {', '.join(probes)}" for machine, probes in self.slow.items()]
        parts += [
            f"{', '.join(probes)} of {machine}: a fault that a second look did not show" for machine, probes in self.unconfirmed.items()
        ]
        parts += [f"{', '.join(probes)} of {machine}: seen once, and no second look was judged" for machine, probes in self.once.items()]
        if not parts and self.passed:
            whole, count = not self.unjudged and not self.untested, f"{self.machines} machine{'' if self.machines == 1 else 's'}"
            parts = [f"all tests passed on {count}" if whole else f"no fault found by {', '.join(sorted(self.passed))}"]
        tested = self.machines - len(self.untested)
        unjudged = [probe if count >= tested else f"{probe} on {count} of {tested}" for probe, count in self.unjudged.items()]
        parts += [f"not judged: {', '.join(unjudged)}"] if unjudged else []
        shown = list(self.untested.items())[:_MOST_SHOWN]
        parts += [f"not tested: {machine} ({why})" for machine, why in shown]
        parts += [f"{len(self.untested) - len(shown)} more not tested"] if len(self.untested) > len(shown) else []
        return "; ".join(parts) or "not judged: no probe said anything"


def doubtful(rounds: Iterable[TestRound], slow: bool = False) -> tuple[str, ...]:
    """Probes whose fault, or slowness, only a comparison shows: they are measured once more. In the order in which they ran."""
    found = (item.probe for one in rounds if one.number == 1 for item in _faults(one, slow) if not one.own_word(item.probe))
    return tuple(dict.fromkeys(found))


def conclude(machines: Sequence[str], rounds: Sequence[TestRound], untested: Mapping[str, str], slow: bool = False) -> Diagnosis:
    """machines: all that were to be tested. untested: machine to why nothing of it is known, of those that have no round. slow: the job
    was stopped because a machine is slow."""
    tested = {one.machine for one in rounds}
    failed: dict[str, list[ProbeJudgement]] = {}
    unconfirmed: dict[str, list[str]] = {}
    once: dict[str, list[str]] = {}
    for one in (one for one in rounds if one.number == 1):
        for item in _faults(one, slow):
            second = _second_look(one.machine, item.probe, rounds)
            if one.own_word(item.probe) or (second is not None and item.probe in {again.probe for again in _faults(second, slow)}):
                failed.setdefault(one.machine, []).append(item)
            elif second is not None:
                unconfirmed.setdefault(one.machine, []).append(item.probe)
            else:
                once.setdefault(one.machine, []).append(item.probe)
    shared = _shared(failed, len(tested))
    own = {name: tuple(item for item in items if item.probe not in shared) for name, items in failed.items()}
    return Diagnosis(
        machines=len(machines),
        failed={name: items for name, items in own.items() if items},
        shared=shared,
        unconfirmed={name: tuple(probes) for name, probes in unconfirmed.items()},
        once={name: tuple(probes) for name, probes in once.items()},
        slow={} if slow else {name: probes for name in dict.fromkeys(one.machine for one in rounds) if (probes := _slow(name, rounds))},
        passed=_with(rounds, "pass") - _with(rounds, "fail", "slow", "not_judged"),
        unjudged=Counter(item.probe for one in rounds if one.number == 1 for item in one.judgements if item.verdict == "not_judged"),
        untested={name: untested.get(name, "nothing came of it") for name in machines if name not in tested},
    )


def _with(rounds: Iterable[TestRound], *verdicts: str) -> frozenset[str]:
    """Probes that have one of these on some machine."""
    return frozenset(item.probe for one in rounds for item in one.judgements if item.verdict in verdicts)


def _faults(one: TestRound, slow: bool) -> list[ProbeJudgement]:
    return [item for item in one.judgements if item.verdict == "fail" or (slow and item.verdict == "slow")]


def _second_look(machine: str, probe: str, rounds: Iterable[TestRound]) -> TestRound | None:
    """That came to a judgement of it; None where there was none."""
    second = (one for one in rounds if (one.machine, one.number) == (machine, 2))
    return next((one for one in second if any(item.probe == probe and item.verdict in _JUDGED for item in one.judgements)), None)


def _shared(failed: Mapping[str, Sequence[ProbeJudgement]], tested: int) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for machine, items in failed.items():
        for item in items:
            found.setdefault(item.probe, []).append(machine)
    return {probe: tuple(names) for probe, names in found.items() if len(names) >= 2 and 2 * len(names) >= tested}


def _slow(machine: str, rounds: Iterable[TestRound]) -> tuple[str, ...]:
    found = (item.probe for one in rounds if one.machine == machine for item in one.judgements if item.verdict == "slow")
    return tuple(dict.fromkeys(found))
