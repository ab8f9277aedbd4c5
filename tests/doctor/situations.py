"""All sites: each adds itself when its module is read."""

from __future__ import annotations

from tests.doctor import sites_beside, sites_names, sites_scrapers, sites_units
from tests.doctor.situation import SITES, Situation

__all__ = ["MODULES", "SITUATIONS", "Situation"]

MODULES = (sites_names, sites_scrapers, sites_beside, sites_units)
SITUATIONS = tuple(SITES)
