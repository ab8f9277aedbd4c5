"""Which block of the network each machine is in, out of what a site has: Slurm's topology.conf, nodes of Kubernetes, or TOML.

A block is what lies below one spine switch: a switch whose parent is the root of the tree, or one without a parent that has nodes
(`topology/tree`); a `BlockName` (`topology/block`); the value of a label; `block`, else `switch`, of a machine in a job.toml.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minder.model.errors import BadInputError
from minder.model.spread import BLOCK_KINDS

__all__ = ["DEFAULT_LABEL", "Network", "expand_hosts", "read_network"]

DEFAULT_LABEL = "network.topology.nvidia.com/spine"  # as NVIDIA Topograph sets it
_PAIR = re.compile(r'(\w+)\s*=\s*(?:"([^"]*)"|(\S+))')  # as Slurm reads its files
_MOST_NODES = 100_000  # of one range: more is a slip of the pen
_BRACKETS = re.compile(r"^([^\[\],]*)\[([^\]]*)\](.*)$")


@dataclass(frozen=True, slots=True)
class Network:
    """block_of: machine to its block. switch_of: to its leaf switch, where that is known."""

    block_of: Mapping[str, str]
    switch_of: Mapping[str, str] = field(default_factory=dict)

    def free(self, machines: frozenset[str] | None = None) -> dict[str, list[str]]:
        """Block to its machines, those of one leaf switch side by side; only `machines`, if they are given. Raises BadInputError for one
        that the network does not have."""
        unknown = sorted((machines or frozenset()) - set(self.block_of))
        if unknown:
            raise BadInputError(f"{unknown[0]} is in no block of the network: mend the list of free machines, or the network's file")
        found: dict[str, list[str]] = {}
        order = sorted(self.block_of, key=lambda name: (self.switch_of.get(name, ""), _natural(name)))
        for name in order:
            if machines is None or name in machines:
                found.setdefault(self.block_of[name], []).append(name)
        return dict(sorted(found.items(), key=lambda item: _natural(item[0])))


def read_network(path: str | os.PathLike[str], label: str = DEFAULT_LABEL) -> Network:
    """topology.conf, a JSON of `kubectl get nodes -o json`, or a TOML with [[machines]] or [topology]. Raises BadInputError."""
    where = Path(path)
    try:
        text = where.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{where} cannot be read: {error.strerror if isinstance(error, OSError) else 'it is no text'}") from error
    if where.suffix == ".json":
        found = _kubernetes(text, label, where)
    elif where.suffix == ".toml":
        found = _toml(text, where)
    else:
        found = _slurm(text, where)
    if not found.block_of:
        raise BadInputError(f"{where} puts no machine into a block: see `minder plan place --help` for what is read")
    return found


def expand_hosts(text: str) -> list[str]:
    """Slurm's short form of a list of nodes.

    >>> expand_hosts("n[1-3,07],r[1-2]n[1-2]")
    ['n1', 'n2', 'n3', 'n07', 'r1n1', 'r1n2', 'r2n1', 'r2n2']
    """
    return [name for part in _split(text) for name in _expand(part)]


def _split(text: str) -> Iterator[str]:
    """At commas outside brackets."""
    depth, begin = 0, 0
    for at, letter in enumerate(text):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and not depth:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


def _expand(part: str) -> Iterator[str]:
    match, wrong = _BRACKETS.match(part), f'"{part}" is no list of nodes: write it like n[1-64]'
    if match is None:
        if "[" in part or "]" in part:
            raise BadInputError(wrong)
        yield from [part] if part else []
        return
    head, ranges, rest = match.groups()
    tails = list(_expand(rest)) or [""]
    for item in ranges.split(","):
        first, _, last = item.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            raise BadInputError(wrong)
        numbers = range(int(first), int(last or first) + 1)
        if not 0 < len(numbers) <= _MOST_NODES:
            raise BadInputError(wrong)
        for number in numbers:
            yield from (f"{head}{number:0{len(first)}d}{tail}" for tail in tails)


def _slurm(text: str, where: Path) -> Network:
    blocks: dict[str, str] = {}
    nodes: dict[str, list[str]] = {}
    parent: dict[str, str] = {}
    for number, line in _lines(text):
        pairs = {key.lower(): quoted or plain for key, quoted, plain in _PAIR.findall(line)}
        try:
            here, below = expand_hosts(pairs.get("nodes", "")), expand_hosts(pairs.get("switches", ""))
        except BadInputError as error:
            raise BadInputError(f"{where}, line {number}: {error}") from error
        if "blockname" in pairs:
            blocks |= dict.fromkeys(here, pairs["blockname"])
        elif "switchname" in pairs:
            nodes[pairs["switchname"]] = here
            parent |= dict.fromkeys(below, pairs["switchname"])
        elif "blocksizes" not in pairs:
            raise BadInputError(f"{where}, line {number}: neither SwitchName nor BlockName: give Slurm's topology.conf")
    leaf = {name: switch for switch, names in nodes.items() for name in names}
    return Network(blocks or {name: _below_root(switch, parent) for name, switch in leaf.items()}, leaf)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """With the number of the first one, where a backslash at its end goes on to the next; without comments and empty ones."""
    begun, number_begun = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.partition("#")[0].rstrip()
        number_begun = number_begun if begun else number
        if plain.endswith("\\"):
            begun += plain[:-1] + " "
            continue
        if (whole := begun + plain).strip():
            yield number_begun, whole
        begun = ""
    if begun.strip():
        yield number_begun, begun


def _below_root(switch: str, parent: Mapping[str, str]) -> str:
    """The switch above it whose parent is the root; a leaf switch right below the root, or without any parent, is a block itself."""
    path = [switch]
    while path[-1] in parent and len(path) <= len(parent):
        path.append(parent[path[-1]])
    return path[-2] if len(path) > 1 else path[0]


def _kubernetes(text: str, label: str, where: Path) -> Network:
    try:
        items = json.loads(text)["items"]
        labels = {str(item["metadata"]["name"]): item["metadata"].get("labels") or {} for item in items}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInputError(f"{where} is no list of nodes: make it with `kubectl get nodes -o json`") from error
    found = {name: str(own[label]) for name, own in labels.items() if label in own}
    if not found:
        raise BadInputError(f"no node in {where} has the label {label}: name the one that says its block with --label")
    return Network(found)


def _toml(text: str, where: Path) -> Network:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInputError(f"{where} is not TOML: {error}") from error
    own: dict[str, Mapping[str, Any]] = {str(item.get("name")): item for item in data.get("machines") or () if isinstance(item, dict)}
    own |= {name: item for name, item in (data.get("topology") or {}).items() if isinstance(item, dict)}
    kind = next((kind for kind in BLOCK_KINDS if any(kind in item for item in own.values())), None)
    if kind is None:
        raise BadInputError(f'no machine in {where} names its block or switch: write block = "b1" to each')
    switches = {name: str(item["switch"]) for name, item in own.items() if "switch" in item}
    return Network({name: str(item[kind]) for name, item in own.items() if kind in item}, switches)


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part)
