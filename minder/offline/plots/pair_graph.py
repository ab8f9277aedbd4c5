"""Pair tests as a picture: machines on a circle, a line for each test. Text alone, so that a page can hold it, which styles its classes.

No meaning stands in colour alone: a faulty machine is a square, a slow one a diamond, one that is not judged an open circle; a failed test
is a dotted line, a slow one dashed, one that could not be run thin. The rate of a test stands beside its line where it did not pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from minder.model.pairs import PairEdge, PairGraph, PairNode

__all__ = ["describe_pairs", "draw_pairs"]

_WIDTH, _HEIGHT = 640, 420
_CENTRE = (_WIDTH / 2, _HEIGHT / 2)
_RADII = (210.0, 150.0)
_MOST_NODES = 40
_EDGES = {
    "passed": 'class="p-passed" stroke-width="1.5"',
    "slow": 'class="p-bad" stroke-width="3" stroke-dasharray="10 5"',
    "failed": 'class="p-bad" stroke-width="4" stroke-dasharray="2 5"',
    "not_judged": 'class="p-none" stroke-width="1" stroke-dasharray="1 4"',
}
_Places = Mapping[str, tuple[float, float]]


def draw_pairs(graph: PairGraph) -> str:
    """SVG without style. Of more than 40 machines, those that passed and were no partner of a suspect are left out."""
    nodes = _shown(graph)
    places = _places(nodes)
    edges = [edge for edge in graph.edges if all(machine in places for machine in edge.machines)]
    lines = [_line(edge, places) for edge in edges]
    shapes = [_shape(node, places[node.machine]) for node in nodes]
    label = escape(describe_pairs(graph), quote=True)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{"".join([*lines, *shapes])}</svg>'


def describe_pairs(graph: PairGraph) -> str:
    """The picture in words.

    >>> bad = PairEdge(("a", "b"), 1, "failed", None, None, None, blamed=True)
    >>> describe_pairs(PairGraph((PairNode("a", "good", ""), PairNode("b", "good", "")), (bad,), None))
    '2 machines in 1 test; the link between a and b is to blame'
    """
    count = f"{len(graph.nodes)} machines in {len(graph.edges)} test{'s' if len(graph.edges) != 1 else ''}"
    parts = [f"{node.machine} is {node.state}" for node in graph.nodes if node.state in ("faulty", "slow")]
    parts += [f"the link between {' and '.join(pair)} is to blame" for pair in graph.links]
    parts += [f"all tested machines of {graph.domain} fail"] if graph.domain else []
    open_ = [node.machine for node in graph.nodes if node.state == "not_judged"]
    parts += [f"not judged: {', '.join(open_)}"] if open_ else []
    return f"{count}; {'; '.join(parts) or 'no machine and no link stands out'}"


def _shown(graph: PairGraph) -> list[PairNode]:
    if len(graph.nodes) <= _MOST_NODES:
        return list(graph.nodes)
    suspect = {node.machine for node in graph.nodes if node.state != "good"}
    suspect |= {machine for edge in graph.edges if edge.blamed for machine in edge.machines}
    near = suspect | {machine for edge in graph.edges if suspect & set(edge.machines) for machine in edge.machines}
    return [node for node in graph.nodes if node.machine in near][:_MOST_NODES]


def _places(nodes: list[PairNode]) -> dict[str, tuple[float, float]]:
    found = {}
    for number, node in enumerate(nodes):
        turn = 2.0 * math.pi * number / max(1, len(nodes)) - math.pi / 2.0
        found[node.machine] = (round(_CENTRE[0] + _RADII[0] * math.cos(turn), 1), round(_CENTRE[1] + _RADII[1] * math.sin(turn), 1))
    return found


def _line(edge: PairEdge, places: _Places) -> str:
    (x1, y1), (x2, y2) = (places[machine] for machine in edge.machines)
    state = edge.state.replace("_", " ")
    title = escape(": ".join([f"{' and '.join(edge.machines)}, round {edge.round}", state, *([edge.detail] if edge.detail else [])]))
    line = f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" {_EDGES[edge.state]}><title>{title}</title></line>'
    if edge.state in ("passed", "not_judged"):
        return line
    said = "failed" if edge.bandwidth_bytes_per_s is None else f"{edge.bandwidth_bytes_per_s / 1e6:.3g} MB/s"
    said += ", link" if edge.blamed else ""
    return line + f'<text x="{round((x1 + x2) / 2, 1)}" y="{round((y1 + y2) / 2 - 5, 1)}" text-anchor="middle">{said}</text>'


def _shape(node: PairNode, place: tuple[float, float]) -> str:
    x, y = place
    state = node.state.replace("_", " ")
    title = f"<title>{escape(f'{node.machine}: {state}: {node.reason}')}</title>"
    shape = {
        "good": f'<circle class="p-good" cx="{x}" cy="{y}" r="9">{title}</circle>',
        "not_judged": f'<circle class="p-open" cx="{x}" cy="{y}" r="9" stroke-width="2">{title}</circle>',
        "slow": f'<rect class="p-mark" x="{x - 9}" y="{y - 9}" width="18" height="18" transform="rotate(45 {x} {y})">{title}</rect>',
        "faulty": f'<rect class="p-mark" x="{x - 10}" y="{y - 10}" width="20" height="20">{title}</rect>',
    }[node.state]
    down = 26 if y >= _CENTRE[1] else -16
    word = "" if node.state == "good" else f" ({state})"
    return f'{shape}<text x="{x}" y="{round(y + down, 1)}" text-anchor="middle">{escape(node.machine + word)}</text>'
