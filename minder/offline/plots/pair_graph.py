"""Pair tests as a picture: machines on a circle, a line for each test. Text alone, so that a page can hold it, which styles its classes.

No meaning stands in colour alone: a faulty machine is a square, a slow one a diamond, one that is not judged an open circle; a failed test
is a dotted line, a slow one dashed, one that could not be run thin. Rates stand in words below the picture: `describe_edge`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from minder.model.pairs import PairEdge, PairGraph, PairNode

__all__ = ["describe_edge", "describe_pairs", "draw_pairs"]

_WIDTH, _HEIGHT = 640, 420
_CENTRE = (_WIDTH / 2, _HEIGHT / 2)
_RADII = (180.0, 170.0)
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


def describe_edge(edge: PairEdge) -> str:
    """One test in words, with the rate of each direction where it was measured.

    >>> describe_edge(PairEdge(("a", "b"), 2, "slow", 0.3, 2e9, 2e-5, forward_bytes_per_s=2e9, backward_bytes_per_s=1.1e10))
    'a and b, round 2: slow, 2 GB/s there, 11 GB/s back'
    """
    rates = ((edge.forward_bytes_per_s, "there"), (edge.backward_bytes_per_s, "back"))
    said = [f"{_rate(value)} {way}" for value, way in rates if value is not None]
    if not said and edge.bandwidth_bytes_per_s is not None:
        said = [_rate(edge.bandwidth_bytes_per_s)]
    head = f"{' and '.join(edge.machines)}, round {edge.round}: {', '.join([edge.state.replace('_', ' '), *said])}"
    return f"{head}: {edge.detail}" if edge.detail else head


def _rate(bytes_per_s: float) -> str:
    size, unit = next((size, unit) for size, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (0.0, "B/s")) if bytes_per_s >= size)
    return f"{bytes_per_s / (size or 1.0):.3g} {unit}"


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
    title = escape(describe_edge(edge))
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" {_EDGES[edge.state]}><title>{title}</title></line>'


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
    dx, dy = (x - _CENTRE[0]) / _RADII[0], (y - _CENTRE[1]) / _RADII[1]  # outwards, where no line runs
    anchor = "middle" if abs(dx) < 0.3 else "start" if dx > 0 else "end"
    word = "" if node.state == "good" else f" ({state})"
    at = f'x="{round(x + 16 * dx, 1)}" y="{round(y + 18 * dy + 5, 1)}" text-anchor="{anchor}"'
    return f"{shape}<text {at}>{escape(node.machine + word)}</text>"
