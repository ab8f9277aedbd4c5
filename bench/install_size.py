"""How much `pip install minder-cluster` puts on a machine: distributions and megabytes of installed files, for the base and its extras.

    python bench/install_size.py
    python bench/install_size.py controller,torch

Reads the metadata of what is installed here: no network, nothing is installed. Bytecode is not counted, minder itself is.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MIB = 1024.0 * 1024.0


def requirements(extras: Iterable[str] = ()) -> list[str]:
    """What minder asks for itself, with these extras; an extra that names another of minder's is followed."""
    found = list(PROJECT["dependencies"])
    for extra in extras:
        for text in PROJECT["optional-dependencies"][extra]:
            asked = Requirement(text)
            found += requirements(asked.extras) if asked.name == PROJECT["name"] else [text]
    return found


def closure(asked: Iterable[str]) -> set[str]:
    """Names of all distributions that these bring with them. Raises PackageNotFoundError for one that is not installed."""
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "") for text in asked]
    while waiting:
        wanted, extra = waiting.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        for own in ("", *wanted.extras):
            if (name, own) not in seen:
                seen.add((name, own))
                waiting += [(Requirement(text), own) for text in importlib.metadata.distribution(name).requires or ()]
    return {name for name, _ in seen}


def size_mib(name: str) -> float:
    """Of the files in its RECORD, without bytecode."""
    files = importlib.metadata.files(name) or []
    return sum(path.size or 0 for path in files if path.suffix != ".pyc") / MIB


def own_size_mib() -> float:
    folders = ("minder", "serve", "models", "datasets")
    return (
        sum(path.stat().st_size for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".pyc")
        / MIB
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("extras", nargs="*", default=["", "controller", "serve"], help="extras of one install, comma separated")
    for extras in parser.parse_args().extras:
        names = closure(requirements(extra for extra in extras.split(",") if extra))
        sizes = {name: size_mib(name) for name in names}
        largest = ", ".join(f"{name} {size:.1f}" for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:5])
        label = f"minder-cluster[{extras}]" if extras else "minder-cluster"
        total = f"{len(names)} distributions, {sum(sizes.values()):.1f} MiB, and minder itself {own_size_mib():.1f} MiB"
        print(f"{label}: {total}; largest: {largest}")


if __name__ == "__main__":
    main()
