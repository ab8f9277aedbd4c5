"""What ETTR a job may expect, and what each mechanism is worth: simulated months, repeated, and summed up (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from minder.act.policy.allowance import allowance
from minder.act.policy.config import PolicyConfig
from minder.act.recovery.pool_size import binomial_quantile
from minder.model.errors import BadInputError
from minder.offline.reliability.mix import Published
from minder.offline.reliability.months import LOST_PHASES, Mechanisms, Month, Scale, draw_faults, simulate
from minder.offline.reliability.saving import save_every, saving_loss

__all__ = ["Outcome", "describe_scale", "make_scale", "plan_ettr", "plan_json", "plan_notes", "plan_rows", "variants"]

_KINDS = {"lab": "measured in our lab", "site": "that you gave", "published": "that others published", "assumed": "that are assumed"}
_DEFAULT = PolicyConfig()
_LONGEST_DAYS = 3660.0
_MOST_INCIDENTS = 3_000_000  # so many take a minute or two


@dataclass(frozen=True, slots=True)
class Outcome:
    """One variant at one size: means over repeats; low and high hold 95 % of the repeats. lost: share of the time, by phase."""

    scale: Scale
    variant: str
    ettr: float
    low: float
    high: float
    lost: Mapping[str, float]
    incidents: float
    evicted: float
    shortfalls: float
    paged: float


def make_scale(published: Published, gpus: int, gpus_per_machine: int, days: float, rate: str, pool: int | None = None) -> Scale:
    """A size with the standbys that the P99 rule gives it (or `pool`). Raises BadInputError."""
    if gpus_per_machine < 1 or gpus < gpus_per_machine:
        raise BadInputError(f"--gpus {gpus} with {gpus_per_machine} per machine: a job has at least one whole machine")
    if gpus % gpus_per_machine:
        raise BadInputError(f"--gpus {gpus} with {gpus_per_machine} per machine: a job has whole machines, give a multiple")
    if not 0.0 < days <= _LONGEST_DAYS:
        raise BadInputError(f"{days:g} days cannot be simulated: more than 0 and at most {_LONGEST_DAYS:.0f}")
    if rate not in published.rates:
        raise BadInputError(f'--rates "{rate}": use {" or ".join(sorted(published.rates))}')
    machines = gpus // gpus_per_machine
    found = published.rates[rate]
    advised = binomial_quantile(machines, found.per_machine_day, 0.99)
    return Scale(gpus, machines, days, advised if pool is None else pool, found)


def variants(without: Sequence[str] = ()) -> dict[str, Mechanisms]:
    """What is compared: everything but `without`, each mechanism left out, and none. Raises BadInputError for one that minder lacks."""
    chosen = Mechanisms().without(*without)
    left = [name for name in Mechanisms.names() if name not in without]
    found = {"everything" if not without else f"without {', '.join(_words(name) for name in without)}": chosen}
    found |= {f"{'and ' if without else ''}without {_words(name)}": chosen.without(name) for name in left}
    return {**found, "nothing of these": Mechanisms.none()}


def _words(name: str) -> str:
    """A mechanism as people say it."""
    words = {"in_place": "restart in place", "update": "updates in place", "shrink": "shrinking"}
    words |= {"memory": "checkpoints in memory", "spaced": "spaced saves"}
    return words.get(name, name.replace("_", "-"))


def plan_ettr(
    scales: Sequence[Scale], published: Published, seed: int, repeats: int, *, without: Sequence[str] = (), policy: PolicyConfig = _DEFAULT
) -> list[Outcome]:
    """Every variant at every size. policy: whose limits bound the evictions. The same seed gives the same numbers.

    Raises BadInputError for a mechanism that minder lacks, and where it would take hours.
    """
    chosen = variants(without)
    number = sum((item.machines * item.rate.per_machine_day + item.rate.manual_per_day) * item.days for item in scales) * repeats
    if number * len(chosen) > _MOST_INCIDENTS:
        raise BadInputError(f"{number:.0f} incidents in {len(chosen)} variants take too long: fewer --repeats, --months or --gpus")
    outcomes = []
    for index, scale in enumerate(scales):
        months: dict[str, list[Month]] = {name: [] for name in chosen}
        for repeat in range(repeats):
            faults = draw_faults(scale, published, np.random.default_rng([seed, index, repeat]))
            for name, mechanisms in chosen.items():
                months[name].append(simulate(scale, mechanisms, faults, published, policy))
        outcomes += [_outcome(scale, name, found) for name, found in months.items()]
    return outcomes


def _outcome(scale: Scale, variant: str, months: Sequence[Month]) -> Outcome:
    ettr = np.array([month.ettr for month in months])
    low, high = np.percentile(ettr, [2.5, 97.5])
    return Outcome(
        scale=scale,
        variant=variant,
        ettr=float(ettr.mean()),
        low=float(low),
        high=float(high),
        lost={phase: float(np.mean([month.lost[phase] / month.span_s for month in months])) for phase in LOST_PHASES},
        incidents=float(np.mean([month.incidents for month in months])),
        evicted=float(np.mean([month.evicted for month in months])),
        shortfalls=float(np.mean([month.shortfalls for month in months])),
        paged=float(np.mean([month.paged for month in months])),
    )


def plan_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """A header, and one row per variant of one size; the losses are shares of the time."""
    rows: list[tuple[str, ...]] = [
        ("variant", "ETTR", "95 % of repeats", *LOST_PHASES, "incidents", "machines evicted", "too few standbys", "left to a person")
    ]
    for item in outcomes:
        span = f"{item.low:.4f} to {item.high:.4f}"
        shares = (f"{item.lost[phase]:.2%}" for phase in LOST_PHASES)
        counts = (f"{item.incidents:.0f}", f"{item.evicted:.0f}", f"{item.shortfalls:.0f}", f"{item.paged:.0f}")
        rows.append((item.variant, f"{item.ettr:.4f}", span, *shares, *counts))
    return rows


def describe_scale(scale: Scale) -> str:
    """One line above a table."""
    return (
        f"{scale.gpus:,} GPUs, {scale.machines:,} machines, {scale.days:g} days, {scale.pool} standbys, "
        f"{scale.machines * scale.rate.per_machine_day + scale.rate.manual_per_day:.1f} incidents a day"
    )


def plan_notes(scales: Sequence[Scale], published: Published, repeats: int, policy: PolicyConfig = _DEFAULT) -> list[str]:
    """What is measured, by whom, and what is assumed."""
    largest = max(scale.machines for scale in scales)
    measured = max(published.restart["machines"])
    lines = [
        f"Simulated, not measured: means of {repeats} repeats that meet the same faults in every variant. Shares are of the whole time.",
        f"Incidents: {scales[0].rate.source}. BR is {published.sources[0][1]}.",
    ]
    for kind, about in _KINDS.items():
        of_kind = [item for item in published.times.values() if item.kind == kind]
        if of_kind:
            named = ", ".join(item.name if item.seconds is None else f"{item.name} {item.seconds:g}" for item in of_kind)
            lines.append(f"Times {about}: {named}. The JSON says where each is from; --time NAME=SECONDS gives your own.")
    lines += [_saving_note(scale, published) for scale in scales]
    lines.append("Without detection: a search by hand, by the times that ByteRobust's authors report.")
    if largest > measured and any(item.kind == "published" and item.seconds is None for item in published.times.values()):
        lines.append(f"Restart times beyond {measured:,} machines are a line drawn on over log2 of machines: none have been published.")
    bounds = "; ".join(_bounds(scale, policy) for scale in scales)
    lines.append(
        f"Evictions are bounded by [policy] ({bounds}; --config takes a job.toml's): what passes that, or, where the job does not shrink, "
        f"finds fewer standbys than machines that leave, waits {policy.response_s:g} s for a person. Racks and switches are not simulated."
    )
    lines.append("Assumed: " + ", ".join(f"{name} {value:g}" for name, value in published.assumed.items()) + " (--assume NAME=VALUE).")
    lines.append(
        "To compare: ByteRobust reports up to 0.97 for its job of 9,600 GPUs. The model is kinder than life: one job, faults "
        "that do not depend on each other, no second machine with the same fault, no checkpoint that is lost."
    )
    return lines


def _bounds(scale: Scale, policy: PolicyConfig) -> str:
    """Limits that are not set follow from the machines, and from how long the run has lasted by its end."""
    most = allowance(policy, scale.machines, 86_400.0 * scale.days)
    return f"{scale.gpus:,} GPUs: {most.job} in the whole run, {most.day} in a day, {most.hour} in an hour"


def _saving_note(scale: Scale, published: Published) -> str:
    every = save_every(published, scale.rate, scale.machines)
    often = "step" if every == 1 else f"{every} steps"
    lost, at_each = (saving_loss(published, scale.rate, scale.machines, number) for number in (every, 1))
    how = "k = sqrt(2 x save_share / (failures a second x step_s))" if published.times["save_every"].seconds is None else "as you gave it"
    return (
        f"{scale.gpus:,} GPUs save every {often} into memory, {how}: {lost:.2%} of the time for saves and steps taken again after a "
        f'failure, {at_each:.2%} at each step. Checkpointer("memory", every={every}).'
    )


def plan_json(outcomes: Sequence[Outcome], published: Published, seed: int, repeats: int) -> dict[str, Any]:
    """Everything that another program, or a sceptic, needs: numbers, assumptions, sources."""
    return {
        "seed": seed,
        "repeats": repeats,
        "assumed": dict(published.assumed),
        "borrowed": {item.name: item.borrowed for item in published.symptoms if item.borrowed},
        "sources": dict(published.sources),
        "times": [asdict(item) for item in published.times.values()],
        "save_every": {str(item.scale.gpus): save_every(published, item.scale.rate, item.scale.machines) for item in outcomes},
        "outcomes": [
            {
                "gpus": item.scale.gpus,
                "machines": item.scale.machines,
                "days": item.scale.days,
                "standbys": item.scale.pool,
                "incidents_per_machine_day": item.scale.rate.per_machine_day,
                "variant": item.variant,
                "ettr": item.ettr,
                "ettr_low": item.low,
                "ettr_high": item.high,
                "lost_share": dict(item.lost),
                "incidents": item.incidents,
                "machines_evicted": item.evicted,
                "too_few_standbys": item.shortfalls,
                "left_to_a_person": item.paged,
            }
            for item in outcomes
        ],
    }
