"""The text that the lab trains on: sentences of a tiny grammar about a harbour, the same in every process, forever.

Nothing is read from disk and nothing is copied from anywhere; `random.Random` with an integer seed gives the same draws on
every platform and version.
"""

from __future__ import annotations

import random

ALPHABET = "\n abcdefghijklmnopqrstuvwxyz,.;?"
_SEED = 20_260_302

_GRAMMAR: dict[str, tuple[str, ...]] = {
    "sentence": ("<clause>.", "<clause>, and <clause>.", "<when> <clause>.", "<clause>; <clause>.", "does <thing> <act> <thing>?"),
    "clause": ("<thing> <acts> <thing>", "<thing> <acts> <thing> <where>", "<thing> <is> <kind>", "<where> <thing> <acts> <thing>"),
    "when": ("at dawn", "after the rain", "every evening", "when the tide turns", "before the bell"),
    "where": ("by the quay", "near the old crane", "under the bridge", "behind the lighthouse", "in the north basin"),
    "thing": ("the <kind> <noun>", "the <noun>", "a <kind> <noun>", "one <noun>"),
    "noun": ("ferry", "pilot", "barge", "gull", "anchor", "harbour", "lantern", "rope", "sailor", "tugboat", "crate", "signal"),
    "kind": ("quiet", "heavy", "red", "patient", "rusty", "early", "narrow", "salted"),
    "acts": ("follows", "carries", "greets", "waits for", "lifts", "turns toward", "passes", "watches"),
    "act": ("follow", "carry", "greet", "lift", "pass", "watch"),
    "is": ("is", "was", "stays", "looks"),
}


def text(length: int = 60_000) -> str:
    """The first `length` characters.

    >>> set(text(2_000)) <= set(ALPHABET)
    True
    """
    draw = random.Random(_SEED)
    parts: list[str] = []
    total = 0
    while total < length:
        sentence = _expand("<sentence>", draw)
        parts.append(sentence + ("\n" if draw.random() < 0.2 else " "))
        total += len(parts[-1])
    return "".join(parts)[:length]


def encoded(length: int = 60_000) -> list[int]:
    """The text as positions in ALPHABET."""
    index = {character: position for position, character in enumerate(ALPHABET)}
    return [index[character] for character in text(length)]


def _expand(template: str, draw: random.Random) -> str:
    while "<" in template:
        before, _, rest = template.partition("<")
        name, _, after = rest.partition(">")
        template = f"{before}{draw.choice(_GRAMMAR[name])}{after}"
    return template
