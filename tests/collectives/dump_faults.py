"""Labelled synthetic cases: one fault each, put into a random layout, with the ranks and the cause that are right."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dump_synthesis import Layout, Program, Simulation, collective, document, entries_of, program

STYLES = ("nccl", "active", "old")


@dataclass(frozen=True)
class Case:
    """truth: the ranks at fault, empty where nobody is; causes: the causes that are right."""

    kind: str
    layout: Layout
    documents: dict[int, dict[str, Any]]
    truth: frozenset[int]
    causes: frozenset[str]


def layout_of(rng: random.Random) -> Layout:
    """8 to 64 ranks, at least two axes."""
    while True:
        tp, dp, pp = rng.choice((1, 2, 4, 8)), rng.choice((1, 2, 4, 8)), rng.choice((1, 2, 4))
        if 8 <= tp * dp * pp <= 64 and (tp > 1) + (dp > 1) + (pp > 1) >= 2:
            return Layout(tp, dp, pp)


def _programs(layout: Layout, rng: random.Random) -> list[Program]:
    seed = rng.random()
    return [program(layout, rank, random.Random(seed + rank)) for rank in range(layout.world)]


def _places(items: Program, matches: Callable[[dict[str, Any]], bool]) -> list[int]:
    """Places in the second and later thirds of a program: after some history."""
    return [at for at, item in enumerate(items) if at > len(items) // 3 and matches(item)]


def _stop(programs: list[Program], rank: int, rng: random.Random, matches: Callable[[dict[str, Any]], bool]) -> bool:
    places = _places(programs[rank], matches)
    if places:
        programs[rank].insert(rng.choice(places), {"do": "stop"})
    return bool(places)


def _is_collective(item: dict[str, Any]) -> bool:
    return item["do"] == "collective"


def _is_tensor(layout: Layout) -> Callable[[dict[str, Any]], bool]:
    return lambda item: item["do"] == "collective" and layout.groups[item["group"]][0] != "default_pg"


def _is_send(item: dict[str, Any]) -> bool:
    return item["do"] == "messages" and any(verb == "send" for verb, _ in item["parts"])


def stuck(layout: Layout, programs: list[Program], rng: random.Random) -> tuple[set[int], str]:
    rank = rng.randrange(layout.world)
    _stop(programs, rank, rng, _is_tensor(layout))
    return {rank}, "not launched"


def stuck_before_send(layout: Layout, programs: list[Program], rng: random.Random) -> tuple[set[int], str]:
    rank = rng.choice([rank for rank in range(layout.world) if layout.pp > 1] or [0])
    if not _stop(programs, rank, rng, _is_send):
        _stop(programs, rank, rng, _is_collective)
    return {rank}, "not launched"


def two_stuck(layout: Layout, programs: list[Program], rng: random.Random) -> tuple[set[int], str]:
    """Two ranks that stop before the same step's same operation, in two tensor groups or stages."""
    first = rng.randrange(layout.world)
    stage = [rank for rank in range(layout.world) if layout.stage(rank) == layout.stage(first) and rank != first]
    second = rng.choice(stage)
    at = rng.choice(_places(programs[first], _is_tensor(layout)))
    programs[first].insert(at, {"do": "stop"})
    programs[second].insert(at, {"do": "stop"})
    return {first, second}, "not launched"


def _in_larger_group(layout: Layout, programs: list[Program], rng: random.Random) -> tuple[int, int]:
    """A rank and the place of a collective that it enters with two or more others: one of two is a tie."""
    rank = rng.randrange(layout.world)
    return rank, rng.choice(_places(programs[rank], lambda item: _is_collective(item) and len(layout.groups[item["group"]][1]) > 2))


def wrong_size(layout: Layout, programs: list[Program], rng: random.Random) -> tuple[set[int], str]:
    rank, at = _in_larger_group(layout, programs, rng)
    programs[rank][at] = {**programs[rank][at], "size": programs[rank][at]["size"] + 7, "blocks": True}
    return {rank}, "mismatch"


def wrong_dtype(layout: Layout, programs: list[Program], rng: random.Random) -> tuple[set[int], str]:
    rank, at = _in_larger_group(layout, programs, rng)
    programs[rank][at] = {**programs[rank][at], "dtype": "BFloat16", "blocks": True}
    return {rank}, "mismatch"


def wrong_order(layout: Layout, programs: list[Program], rng: random.Random) -> tuple[set[int], str]:
    """A rank that calls another operation in the place of the one that its peers call."""
    rank, at = _in_larger_group(layout, programs, rng)
    programs[rank].insert(at, collective(programs[rank][at]["group"], "broadcast", 32, "wrong"))
    return {rank}, "mismatch"


def straggler(layout: Layout, programs: list[Program], rng: random.Random) -> tuple[set[int], str]:
    rank = rng.randrange(layout.world)
    for item in programs[rank]:
        if item["do"] == "compute":
            item["s"] *= 3
    return {rank}, "launched late"


def healthy(layout: Layout, programs: list[Program], rng: random.Random) -> tuple[set[int], str]:
    return set(), "none"


_FAULTS = {
    "stuck before a collective": stuck, "stuck before a send": stuck_before_send, "two ranks stuck": two_stuck, "wrong size": wrong_size,
    "wrong dtype": wrong_dtype, "wrong operation": wrong_order, "dump missing": stuck, "dump without entries": stuck, "dump cut off": stuck,
    "ring overwritten": stuck, "straggler": straggler, "healthy, idle": healthy, "healthy, in flight": healthy,
    "network stall": healthy, "launched the last one late": healthy,
}  # fmt: skip
KINDS = tuple(_FAULTS)


def make(kind: str, seed: int, style: str | None = None) -> Case:
    """One case. The dead rank's dump is left out of `documents`; a cut one is None there."""
    rng = random.Random(f"{kind}-{seed}")
    layout = layout_of(rng)
    programs = _programs(layout, rng)
    truth, cause = _FAULTS[kind](layout, programs, rng)
    causes = {cause}
    dead: set[tuple[str, int]] = set()
    if kind == "network stall":
        tensor = [name for name, (description, _) in layout.groups.items() if description == "TP_GROUP"]
        dead = {(rng.choice(tensor), 9)} if tensor else {("0", 2)}
        causes = {"unknown"} if tensor else {"unknown", "none"}  # of the whole world one moment looks like any other
    simulation = Simulation(layout, programs, dead)
    if kind == "launched the last one late":
        rank = rng.randrange(layout.world)
        last = max(at for at, item in enumerate(programs[rank]) if _is_collective(item))
        programs[rank].insert(last, {"do": "compute", "s": rng.uniform(5, 60)})
        simulation.dead = {("0", layout.steps)}
        truth, causes = {rank}, {"launched late"}
    simulation.run()
    simulation.finish()
    return Case(kind, layout, _documents(kind, simulation, rng, style, truth), frozenset(truth), frozenset(causes | _also(kind)))


def _also(kind: str) -> set[str]:
    return {"dead"} if kind in ("dump missing", "dump cut off") else set()


def _documents(kind: str, simulation: Simulation, rng: random.Random, style: str | None, truth: set[int]) -> dict[int, dict[str, Any]]:
    layout = simulation.layout
    if style is None:  # the old format has no data types and no times of completion
        choice = rng.choice(STYLES[:2] if kind == "wrong dtype" else STYLES)
        style = "nccl" if kind in ("straggler", "launched the last one late") else choice
    if kind in ("dump without entries", "ring overwritten"):
        style = "active" if kind == "dump without entries" else "nccl"
    until_s = float("inf")
    if kind == "healthy, in flight":
        last = [max(op.created_s for op in ops) for ops in simulation.ops]
        until_s = max(last) + 0.0005
    skews = [rng.gauss(0, 0.02) for _ in range(layout.world)]
    found = {}
    for rank in range(layout.world):
        entries = entries_of(simulation, rank, until_s, skews[rank])
        found[rank] = document(layout, rank, entries, style, 40 if kind == "ring overwritten" else 0)
        if kind == "dump without entries" and rank in truth:
            found[rank]["entries"] = []
        if kind in ("dump missing", "dump cut off") and rank in truth:
            del found[rank]
    return found
