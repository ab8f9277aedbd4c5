"""How grave a verdict is, in order."""

from __future__ import annotations

__all__ = ["TIER_ORDER"]


class _TierOrder(dict[str, int]):
    """A tier that a newer version wrote is worth a person's look, and never an eviction."""

    def __missing__(self, tier: str) -> int:
        return self["page"]


TIER_ORDER: dict[str, int] = _TierOrder(watch=0, page=1, evict=2)
