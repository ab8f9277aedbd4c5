"""A layout, and the spares of a job, as tables and as documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minder.model.errors import BadInputError
from minder.model.spread import block_kind
from minder.model.topology import Topology
from minder.offline.placement.layout import Layout, block_spares

__all__ = ["layout_json", "layout_notes", "layout_rows", "spares_of", "spares_rows"]


def layout_rows(layout: Layout) -> list[tuple[str, ...]]:
    """A row for each block that is used, header first."""
    rows: list[tuple[str, ...]] = [("block", "machines", "spares", "first machines", "spares are")]
    for block in sorted({layout.block_of[machine] for machine in layout.machines}):
        own = [machine for machine in layout.machines if layout.block_of[machine] == block]
        spares = layout.spares.get(block, ())
        shown = ", ".join(own[:4]) + (", ..." if len(own) > 4 else "")
        rows.append((block, str(len(own)), str(len(spares)), shown, ", ".join(spares) or "-"))
    return rows


def layout_notes(layout: Layout) -> list[str]:
    """What the layout costs, in words."""
    spread = ", ".join(f"{axis} {count}" for axis, count in sorted(layout.spread.items())) or "no group crosses machines"
    proven = "no choice is better" if layout.solution.proven else "not proven to be the best: there are too many ways to cut a group"
    return [
        f"largest spread of a group, in blocks: {spread}; {layout.solution.blocks} blocks are used ({proven})",
        "spares of a block take the places of its own machines, so that no spread grows (docs/standbys.md)",
    ]


def layout_json(layout: Layout) -> dict[str, Any]:
    """machines: in the order of their ranks."""
    return {
        "machines": [{"name": machine, "block": layout.block_of[machine]} for machine in layout.machines],
        "spares": {block: list(machines) for block, machines in layout.spares.items()},
        "spread": dict(layout.spread),
        "unit": layout.unit,
        "blocks": layout.solution.blocks,
        "proven": layout.solution.proven,
    }


def spares_of(topology: Topology, rate: float) -> list[dict[str, Any]]:
    """For each block of a job: its machines, the standbys there, and how many it should have. rate: failures per machine and day. Raises
    BadInputError where no machine names its block or switch."""
    domains, kind = topology.domains, block_kind(topology.domains, topology.machines)
    if kind is None:
        raise BadInputError('no machine of the job names its block or switch: write block = "b1" into its [[machines]]')
    blocks: dict[str, dict[str, Any]] = {}
    for name in (*topology.machines, *topology.standbys):
        block = domains.get(name, {}).get(kind, "unknown")
        row = blocks.setdefault(block, {"block": block, "machines": 0, "standbys": [], "wanted": 0})
        if name in topology.standbys:
            row["standbys"].append(name)
        else:
            row["machines"] += 1
    for row in blocks.values():
        row["wanted"] = block_spares(row["machines"], rate) if row["machines"] else 0
        row["short"] = max(0, row["wanted"] - len(row["standbys"]))
    return [blocks[name] for name in sorted(blocks)]


def spares_rows(found: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The same as a table, header first."""
    rows: list[tuple[str, ...]] = [("block", "machines", "standbys", "wanted", "short")]
    return rows + [_row(item) for item in found]


def _row(item: Mapping[str, Any]) -> tuple[str, ...]:
    return (str(item["block"]), str(item["machines"]), ", ".join(item["standbys"]) or "-", str(item["wanted"]), str(item["short"]))
