"""A question whose answer is too large for one piece, cut into portions by names, then by the values of the label that has most."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["Portion", "quoted"]


@dataclass(frozen=True, slots=True)
class Portion:
    """Series whose whole name matches the pattern and, for each of `only`, whose label has one of these values ("": those without it)."""

    pattern: str
    names: tuple[str, ...] = ()  # what the pattern stands for, once that is known
    only: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def matchers(self, selector: str) -> str:
        """As a query has them.

        >>> Portion("a|b", only=(("instance", ("h1:9100", "")),)).matchers('cluster="x"')
        '{__name__=~"a|b",instance=~"h1:9100|",cluster="x"}'
        """
        parts = [f'__name__=~"{quoted(self.pattern)}"', *(f'{label}=~"{_any_of(values)}"' for label, values in self.only), selector]
        return "{" + ",".join(part for part in parts if part) + "}"

    def of_names(self, names: Sequence[str]) -> Portion:
        return replace(self, pattern="|".join(map(re.escape, names)), names=tuple(names))

    def by_names(self) -> list[Portion]:
        """Two halves; none of a single name."""
        middle = len(self.names) // 2
        return [self.of_names(self.names[:middle]), self.of_names(self.names[middle:])] if middle else []

    def by_values(self) -> list[Portion]:
        """Two halves by the values of the label that was taken last; none where it has but one."""
        if not self.only:
            return []
        *before, (label, values) = self.only
        middle = len(values) // 2
        halves = (values[:middle], values[middle:])
        return [replace(self, only=(*before, (label, half))) for half in halves] if middle else []

    def by_label(self, label: str, values: Sequence[str]) -> list[Portion]:
        """Two halves by a label that was not taken yet; a series may lack it."""
        return replace(self, only=(*self.only, (label, ("", *values)))).by_values()


def quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _any_of(values: Sequence[str]) -> str:
    return quoted("|".join(map(re.escape, values)))
