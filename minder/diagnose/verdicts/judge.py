"""The judge: suspects of several rules become verdicts, one per episode.

- Rules that name the same machines agree: confidence is 1 - prod(1 - each). A rule that names another contradicts: its evidence goes
  into `against` and the tier falls to page.
- A suspicion may need a second witness (Suspect.alone): without another source that names the same machines for at least a page,
  its tier is no higher than that. A capture cannot tell slow from hung; two sources that agree can.
- An episode opens with its first verdict of tier page or evict and lasts until no rule has suspected its machines for `recovered_s`;
  then one `recovered` verdict closes it. Suspicions of tier watch open nothing: they would be noise. A page that grows into an
  evict is a verdict again (same machines, same since_s), since it changes what may be done, and so is a hang's for which the machine then
  gives its own word; `minder replay` prints the first line only.
- In the shadow of an open episode, and for `shadow_s` after it, no other machine is named: peers that stall or go dark behind the
  culprit are its victims. Six things end the shadow: the episode's machines left the job; numbers that went wrong on another machine
  while the open episode only pages or names no machine; what the rule that paged for the job, and named no machine, now says of one; a
  standstill that connections, stacks or silence pin to a machine, where the episode is one of slowness, which brings about none; and, once
  the episode is over, a job that is down and names none, or a job that has stepped as usual for a minute since: that one is no victim.
- What a machine says of itself (cause explicit, tier evict: a kernel or driver line, a lost device, an order) is no victim's sign. No
  shadow hides it, and nothing said of another machine contradicts it: two machines can fail at once. It does contradict a rule that infers
  another culprit from how the job behaves.
  A spike throws no shadow and contradicts no suspicion: training goes on, so nothing that comes after it is its victim; nor does a
  signal that is worth a page while the job steps on, nor the word that the job stands. What another rule says of the same machines in
  such an episode is a verdict again, as if it were graver.
- A rule may weigh what the others say (WeighingRule): a suspicion is fused as it comes out of that. What slows the job down without being
  a machine's doing (a stage, the sequences, the network, the data) is a trouble of its own beside whatever else the job has.
- A rule that could not look (RuleResult.no_data) has not seen its suspicion end: its episodes last.
- A rule that raises, or answers what is no answer, has no data for that observation, and the other rules are asked too. Its state is
  kept, and it is asked again at the next observation. What it raised is data (`Judge.failures`): the judge writes to no log. One that
  raises as it weighs what another rule says leaves that as it is.
- A job that was started again starts afresh: what fails now is another failure, though it looks like the last one.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from minder.model.evidence import TIER_ORDER, Evidence, Suspect, Tier, Verdict
from minder.model.observation import Observation, RequestKind, Rule, RuleResult, WeighingRule

__all__ = ["Judge", "RuleFailure"]


@dataclass(frozen=True, slots=True)
class RuleFailure:
    """One exception of one rule (or stage) at one observation. trace: the traceback as Python prints it, several lines.

    Two failures with the same `key` are the same failure met again: the same type of exception raised at the same place. The message is
    no part of it, since it may hold a time or a value of that observation.
    """

    rule: str
    error: str
    trace: str
    key: tuple[str, ...]

    @classmethod
    def of(cls, rule: str, error: Exception) -> RuleFailure:
        frames = traceback.extract_tb(error.__traceback__)
        places = {f"{frame.filename}:{frame.lineno}" for frame in frames}  # a set: an exception that is kept and raised again grows
        text = f"{type(error).__name__}: {error}"
        return cls(rule, text, "".join(traceback.format_exception(error)), (rule, type(error).__name__, *sorted(places)))


_EXPLICIT = frozenset({"explicit", "numeric"})
_OF_MACHINES = frozenset({"explicit", "absence"})  # where it is as grave as the rest, it is the cause: the policy asks no memory then
_ASIDE = frozenset({"stage imbalance", "sequence imbalance", "communication", "data"})  # causes of slowness, each a trouble of its own
_STANDSTILLS = frozenset({"stall", "absence"})
_STEPS_AGAIN_S = 60.0  # at its usual pace by the step counter: what went before is behind the job
_STOPS_NOTHING = _ASIDE | {"spikes", "notices", "standing"}  # they hide no later suspect: training goes on, or no machine is named


@dataclass(slots=True)
class _Episode:
    verdict: Verdict
    seen_s: float
    closed_s: float | None = None


@dataclass(slots=True)
class _Answers:
    """What all rules said of one observation. no_data: the sources whose silence means nothing."""

    suspects: list[Suspect] = field(default_factory=list)
    requests: set[RequestKind] = field(default_factory=set)
    no_data: set[str] = field(default_factory=set)


class _Said(NamedTuple):
    """Whose word it is, and of whom: a later one takes the place of the earlier one."""

    source: str
    machines: tuple[str, ...]
    kind: str


class _Aim(NamedTuple):
    """What is compared when suspicions are fused. beside: the source, where its suspicions stand beside those of others."""

    kind: str
    machines: tuple[str, ...]
    beside: str


class Judge:
    """Stateful and causal; time is the observation's. Feed every observation, in order.

    failures: what rules raised at the newest observation, one item per rule, in the rules' order.
    """

    def __init__(self, rules: Sequence[Rule], recovered_s: float = 180.0, shadow_s: float = 600.0, memory_s: float = 20.0) -> None:
        self._take(rules)
        self.failures: tuple[RuleFailure, ...] = ()
        self._sources: dict[str, set[str]] = {}  # rule to the sources of the suspects that it ever returned
        self._recovered_s = recovered_s
        self._shadow_s = shadow_s
        self._memory_s = memory_s
        self._recent: dict[_Said, Suspect] = {}
        self._episodes: list[_Episode] = []
        self._generation: int | None = None

    def _take(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._weighing = [rule for rule in rules if isinstance(rule, WeighingRule)]

    def restart(self, rules: Sequence[Rule], by_s: float) -> None:
        """Go on with other rules, after the wall clock was set forward by so much: episodes last, suspicions are forgotten."""
        self._take(rules)
        self._recent = {}
        for episode in self._episodes:
            episode.seen_s += by_s
            episode.closed_s = None if episode.closed_s is None else episode.closed_s + by_s

    def judge(self, observation: Observation) -> tuple[list[Verdict], frozenset[RequestKind]]:
        """New verdicts of this observation, and what the rules want to see before they say more."""
        answers, now_s = self._ask(observation), observation.now_s
        self._forget(now_s, observation)
        for episode in self._episodes:
            if answers.no_data & set(episode.verdict.sources):
                self._keep_open(episode, now_s)
        for suspect in answers.suspects:
            self._recent[_Said(suspect.source, suspect.machines, suspect.kind)] = suspect
        verdicts = [verdict for group in _by_target(answers.suspects) if (verdict := self._consider(group, now_s)) is not None]
        return [*verdicts, *self._close(now_s)], frozenset(answers.requests)

    def keep_open(self, now_s: float) -> None:
        """No open episode ends now: what would end it could not be observed."""
        for episode in self._episodes:
            self._keep_open(episode, now_s)

    def _keep_open(self, episode: _Episode, now_s: float) -> None:
        if episode.closed_s is None:
            episode.seen_s = now_s

    def _ask(self, observation: Observation) -> _Answers:
        """Every rule, each guarded by itself."""
        answers, failures = _Answers(), dict[str, RuleFailure]()
        for rule in self.rules:
            try:
                result = _checked(rule.observe(observation))
            except Exception as error:  # noqa: BLE001
                failures.setdefault(rule.name, RuleFailure.of(rule.name, error))
                answers.no_data |= {rule.name} | self._sources.get(rule.name, set())
            else:
                self._add(answers, rule.name, self._weighed(result, observation.now_s, failures))
        order = [rule.name for rule in self.rules]
        self.failures = tuple(sorted(failures.values(), key=lambda failure: order.index(failure.rule)))
        return answers

    def _weighed(self, result: RuleResult, now_s: float, failures: dict[str, RuleFailure]) -> RuleResult:
        """What the weighing rules make of it, each guarded by itself."""
        suspects = result.suspects
        for rule in self._weighing if suspects else ():
            try:
                suspects = _checked(RuleResult(tuple(rule.weigh(suspect, now_s) for suspect in suspects))).suspects
            except Exception as error:  # noqa: BLE001
                failures.setdefault(rule.name, RuleFailure.of(rule.name, error))
        return result if suspects is result.suspects else replace(result, suspects=suspects)

    def _add(self, answers: _Answers, name: str, result: RuleResult) -> None:
        answers.no_data |= {name} if result.no_data else set()
        answers.requests |= result.requests
        answers.suspects += result.suspects
        self._sources.setdefault(name, set()).update(suspect.source for suspect in result.suspects)

    def _forget(self, now_s: float, observation: Observation) -> None:
        """Suspicions that are old, episodes whose shadow is over, and all of them where the job was started again."""
        self._recent = {key: item for key, item in self._recent.items() if now_s - item.time_s <= self._memory_s}
        stepping_s = _stepping_since_s(observation)
        self._episodes = [item for item in self._episodes if item.closed_s is None or self._hides(item.closed_s, stepping_s, now_s)]
        if observation.job is not None:
            if observation.job.generation != self._generation:
                self._generation, self._recent, self._episodes = observation.job.generation, {}, []
            here = set(observation.job.machines)
            self._episodes = [item for item in self._episodes if not item.verdict.machines or here & set(item.verdict.machines)]

    def _hides(self, closed_s: float, stepping_s: float, now_s: float) -> bool:
        """Whether an episode that is over may still have victims. stepping_s: since when the job steps as usual."""
        return now_s - closed_s <= self._shadow_s and now_s - max(closed_s, stepping_s) < _STEPS_AGAIN_S

    def _consider(self, suspects: Sequence[Suspect], now_s: float) -> Verdict | None:
        """A new verdict: of a new episode, or of one that became graver; None for what is known, only watched, or in a shadow."""
        verdict = self._fuse(suspects, now_s)
        own = next((item for item in self._episodes if _same(item.verdict, verdict) and item.closed_s is None), None)
        if own is not None:
            own.seen_s = now_s
            another_trouble = _STOPS_NOTHING.issuperset(own.verdict.sources) and not _STOPS_NOTHING.issuperset(verdict.sources)
            own_word = _is_own(verdict, verdict.tier) and not _is_own(own.verdict, own.verdict.tier)
            if TIER_ORDER[verdict.tier] > TIER_ORDER[own.verdict.tier] or another_trouble or own_word:
                own.verdict = replace(verdict, since_s=own.verdict.since_s)
                return own.verdict
            return None
        if verdict.tier == "watch" or self._is_shadowed(verdict):
            return None
        self._episodes.append(_Episode(verdict, now_s))
        return verdict

    def _fuse(self, suspects: Sequence[Suspect], now_s: float) -> Verdict:
        """One verdict of all that name the same, less what speaks for another machine."""
        target = suspects[0]
        agreeing = [item for item in self._recent.values() if _aim(item) == _aim(target)]
        own = any(_is_own(item, _tier(item, agreeing)) for item in agreeing)
        opposing = [] if own else [item for item in self._recent.values() if _contradicts(item, target)]
        doubt = math.prod(1.0 - item.confidence for item in agreeing)
        tiers = {item.source: _tier(item, agreeing) for item in agreeing}
        best = max(agreeing, key=lambda item: (TIER_ORDER[tiers[item.source]], item.cause in _OF_MACHINES, item.confidence))
        tier: Tier = "page" if opposing and tiers[best.source] == "evict" else tiers[best.source]
        against = [piece for item in agreeing for piece in item.against]
        for item in opposing:
            message = f"{item.source} names {', '.join(item.machines)} ({item.cause}, confidence {item.confidence:.2f})"
            against.append(Evidence(item.source, item.machines[0], message, since_s=item.since_s))
        confidence = min(0.99, 1.0 - doubt)
        if opposing:
            confidence = max(0.1, confidence - 0.3 * max(item.confidence for item in opposing))
        return Verdict(
            time_s=now_s,
            kind=target.kind,
            tier=tier,
            machines=target.machines,
            cause=best.cause,
            confidence=confidence,
            since_s=min(item.since_s for item in agreeing),
            evidence=tuple(dict.fromkeys(piece for item in agreeing for piece in item.evidence)),
            against=tuple(against),
            sources=tuple(sorted({item.source for item in agreeing})),
            failures=tuple(dict.fromkeys(piece for item in agreeing for piece in item.failures)),
        )

    def _is_shadowed(self, verdict: Verdict) -> bool:
        """Whether an episode hides it: see the head of this module for what ends a shadow."""
        for episode in self._episodes:
            if _STOPS_NOTHING.issuperset(episode.verdict.sources):
                continue
            if episode.closed_s is not None and (_same(episode.verdict, verdict) or not verdict.machines):
                continue  # the same machine failed again, or the job is down, and no machine is named for it
            if _is_own(verdict, verdict.tier):
                continue
            if episode.verdict.cause == "slowdown" and _is_pinned(verdict):
                continue
            unnamed = not episode.verdict.machines
            if verdict.tier == "evict" and verdict.cause in _EXPLICIT and (episode.verdict.tier == "page" or unnamed):
                continue  # a job that is restarted for an unknown failure must not hide the machine's own evidence
            same_rule = bool(set(verdict.sources) & set(episode.verdict.sources))
            if verdict.tier == "evict" and episode.verdict.tier == "page" and unnamed and same_rule:
                continue  # it could not say whose fault it is, and now it can
            return True
        return False

    def _close(self, now_s: float) -> list[Verdict]:
        """Episodes that no rule has suspected for a while have recovered."""
        closed = []
        for episode in self._episodes:
            if episode.closed_s is None and now_s - episode.seen_s > self._recovered_s:
                episode.closed_s = now_s
                closed.append(replace(episode.verdict, time_s=now_s, kind="recovered", tier="watch", evidence=(), against=(), failures=()))
        return closed


def _checked(result: RuleResult) -> RuleResult:
    """The answer, if the rest can work with it. Raises TypeError, ValueError."""
    if not isinstance(result, RuleResult):
        raise TypeError(f"a rule answers with a RuleResult, not with {type(result).__name__}")
    hash(result.requests)
    suspects = tuple(result.suspects)
    for suspect in suspects:
        if not isinstance(suspect, Suspect):
            raise TypeError(f"a suspect is a Suspect, not {type(suspect).__name__}")
        hash((suspect.source, suspect.machines, suspect.kind, suspect.tier, suspect.alone, suspect.evidence, suspect.failures))
        if isinstance(suspect.machines, str) or not all(isinstance(machine, str) for machine in suspect.machines):
            raise TypeError(f"machines are a tuple of names, not {suspect.machines!r}")
        if not (0.0 <= suspect.confidence <= 1.0 and not math.isnan(suspect.since_s) and math.isfinite(suspect.time_s)):
            raise ValueError(f"no confidence from 0 to 1, or no time: {suspect.confidence}, {suspect.since_s}, {suspect.time_s}")
    return result if suspects is result.suspects else replace(result, suspects=suspects)


def _by_target(suspects: Sequence[Suspect]) -> list[list[Suspect]]:
    """Suspects of this observation by whom they name, the gravest first."""
    groups: dict[_Aim, list[Suspect]] = {}
    for suspect in suspects:
        groups.setdefault(_aim(suspect), []).append(suspect)
    return sorted(groups.values(), key=lambda group: -max(TIER_ORDER[_tier(item, group)] + item.confidence for item in group))


def _tier(item: Suspect, agreeing: Sequence[Suspect]) -> Tier:
    """What it may lead to, given all that name the same."""
    seconded = any(other.source != item.source and other.tier != "watch" for other in agreeing)
    if item.alone is None or seconded or TIER_ORDER[item.alone] > TIER_ORDER[item.tier]:
        return item.tier
    return item.alone


def _contradicts(item: Suspect, target: Suspect) -> bool:
    """Another rule's suspicion of another machine that is worth a page; a suspicion of the job contradicts none."""
    disjoint = bool(item.machines) and bool(target.machines) and not set(item.machines) & set(target.machines)
    return disjoint and item.source not in {target.source, *_STOPS_NOTHING} and _tier(item, ()) != "watch"


def _is_own(item: Suspect | Verdict, tier: Tier) -> bool:
    """Whether it is the machine's own word, which nothing that went wrong elsewhere brings about. tier: what it may lead to, which is less
    than it claims where it needs a second witness."""
    return item.kind == "machine" and item.cause == "explicit" and tier == "evict"


def _is_pinned(verdict: Verdict) -> bool:
    """A standstill whose machine more than its telemetry names."""
    return verdict.kind == "machine" and verdict.cause in _STANDSTILLS and not {"telemetry"}.issuperset(verdict.sources)


def _stepping_since_s(observation: Observation) -> float:
    """inf where the job does not step as usual, or its steps are not read."""
    mode = observation.mode
    return mode.since_s if mode is not None and mode.source == "step counter" and mode.likeliest == "stepping" else math.inf


def _same(one: Verdict, other: Verdict) -> bool:
    return one.kind == other.kind and one.machines == other.machines and _beside(one) == _beside(other)


def _aim(item: Suspect) -> _Aim:
    return _Aim(item.kind, item.machines, item.source if item.source in _ASIDE else "")


def _beside(verdict: Verdict) -> str:
    return verdict.sources[0] if _ASIDE.issuperset(verdict.sources) else ""
