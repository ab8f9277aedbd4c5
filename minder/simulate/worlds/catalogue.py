"""The families that there are, and which of them are left out together: generators that share an author or code teach the same habits."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import cast

from minder.model.errors import ConfigError
from minder.simulate.worlds import families
from minder.simulate.worlds.world import Family

__all__ = ["TUNED_ON", "family_names", "group_of", "load_family"]

# Where it is not listed, a family is a group of its own.
_GROUPS: Mapping[str, str] = {
    "classic": "own", "recipes": "own", "queue": "queue and measured", "measured": "queue and measured", "fluid": "fluid and trace",
    "trace": "fluid and trace",
}  # fmt: skip
TUNED_ON = ("recipes", "classic", "foreign", "barriers")  # the default detector's rules were made on these


def family_names() -> tuple[str, ...]:
    """The modules of `families`, in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(families.__path__) if not module.name.startswith("_")))


def load_family(name: str) -> Family:
    """A family by name. Raises ConfigError for a name that there is not."""
    if name not in family_names():
        raise ConfigError(f'there is no family "{name}": use {", ".join(family_names())}')
    return cast(Family, importlib.import_module(f"{families.__name__}.{name}"))


def group_of(name: str) -> str:
    """The group in which a family is left out.

    >>> group_of("classic") == group_of("recipes")
    True
    """
    return _GROUPS.get(name, name)
