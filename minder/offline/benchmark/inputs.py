"""The inputs of a part: those that are made from a seed, and those that are kept as files, each a folder beside its truth.

FOLDER/inputs/stacks-07/...      what a program gets a copy of
FOLDER/truths/stacks-07.json     what is right
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minder.model.clock import parse_time
from minder.model.errors import BadInputError
from minder.offline.benchmark.card import PARTS, Card, benchmark_folder
from minder.offline.benchmark.generated import write_drawn, write_simulated
from minder.offline.benchmark.right import Right, read_right, write_right

__all__ = ["GENERATED", "Order", "judging_orders", "orders_of", "prepare", "whole_parts"]

GENERATED = ("telemetry", "logs")  # the parts that a secret seed can make anew: the judging part


@dataclass(frozen=True, slots=True)
class Order:
    """One input to be made. kind: a family, a recipe, or "kept". index: of the family or recipe. seed: of the part."""

    name: str
    part: str
    kind: str
    index: int
    seed: str

    def write(self, folder: Path) -> Right:
        """Makes the input's folder, and returns its truth."""
        if self.kind == "kept":
            return _unpack(folder)
        maker = write_drawn if self.part == "telemetry" else write_simulated
        return maker(folder, self.kind, self.seed, self.index)


def orders_of(card: Card, parts: Sequence[str], seed: str) -> list[Order]:
    """Every input of these parts, in an order that mixes families. Names say the part and nothing else.

    Raises BadInputError for a part that there is not, or whose kept inputs are not installed with the package.
    """
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise BadInputError(f'the benchmark has no part "{unknown[0]}": use {", ".join(PARTS)}')
    lacking = [part for part in parts if part not in whole_parts()]
    if lacking:
        raise BadInputError(
            f'part "{lacking[0]}" is not installed with the package: run from a checkout of the repository, or leave it out'
        )
    return [order for part in parts for order in _orders(card, part, seed)]


def judging_orders(card: Card, parts: Sequence[str], seed: str) -> list[Order]:
    """What a judging seed makes of these parts of GENERATED: nothing that is public already."""
    return [order for part in parts for order in _orders(card, part, seed) if order.kind != "kept"]


def whole_parts() -> list[str]:
    """Those of which every input can be had here: a package has none of the inputs that are kept as files."""
    lacking = {item["part"] for name, item in _kept().items() if not _archive(name).exists()}
    return [part for part in PARTS if part not in lacking]


def prepare(orders: Sequence[Order], folder: Path, jobs: int, on_made: Callable[[int, int], None] = lambda done, of: None) -> list[Right]:
    """Makes what is missing, in so many processes; the truths in the order of the orders. What is there already is kept."""
    missing = [order for order in orders if not _truth(folder, order.name).exists()]
    if missing and jobs > 1:
        with ProcessPoolExecutor(jobs) as pool:
            for done, _ in enumerate(pool.map(_make, missing, [folder] * len(missing)), start=1):
                on_made(done, len(missing))
    else:
        for done, order in enumerate(missing, start=1):
            _make(order, folder)
            on_made(done, len(missing))
    return [read_right(_truth(folder, order.name)) for order in orders]


def _make(order: Order, folder: Path) -> None:
    """The truth comes last, so that an input without one is made again."""
    place = folder / "inputs" / order.name
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_right(_truth(folder, order.name), order.write(place))


def _truth(folder: Path, name: str) -> Path:
    return folder / "truths" / f"{name}.json"


def _orders(card: Card, part: str, seed: str) -> Iterator[Order]:
    if part == "telemetry":
        for index in range(1, card.each + 1):
            for family in card.families:
                yield Order(_name(part, seed, family, index), part, family, index, seed)
    if part == "logs":
        for index in range(1, card.count + 1):
            yield Order(_name(part, seed, card.recipe, index), part, card.recipe, index, seed)
    for name, item in _kept().items():
        if item["part"] == part:
            yield Order(name, part, "kept", 0, seed)


def _name(part: str, seed: str, kind: str, index: int) -> str:
    """Says nothing of the family to a program."""
    return f"{part}-{hashlib.sha256(f'{seed}/{kind}/{index}'.encode()).hexdigest()[:8]}"


def _cases() -> Path:
    return benchmark_folder() / "cases"


def _archive(name: str) -> Path:
    return _cases() / f"{name}.tar.xz"


def _kept() -> dict[str, dict[str, Any]]:
    return dict(json.loads((_cases() / "answers.json").read_text(encoding="utf-8")))


def _unpack(folder: Path) -> Right:
    item = _kept()[folder.name]
    with tarfile.open(_archive(folder.name)) as packed:
        packed.extractall(folder, filter="data")
    onset_s = None if item.get("onset") is None else parse_time(item["onset"])
    return Right(
        folder.name, item["part"], tuple(item.get("names", ())), bool(item.get("unknown")), item.get("fault"), onset_s,
        float(item.get("seconds", 0.0)),
    )  # fmt: skip
