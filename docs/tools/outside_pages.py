"""The documentation site shows pages that live outside docs/ too: cards beside what they describe, and what a repository keeps at its root.

A hook of MkDocs (mkdocs.yml). A link that climbs out of docs/ is turned to where the site has the page; one that leads to a file which the
site does not show is left to MkDocs, whose strict build refuses it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "datasets/README.md",
    "datasets/benchmark/RESULTS.md",
    "datasets/benchmark/RULES.md",
    "datasets/incident_mix/README.md",
    "datasets/step_traces/README.md",
    "datasets/hang/README.md",
    "models/reference/card.md",
    "models/reference-int/card.md",
    "notebooks/README.md",
)
_LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside docs/ under their own paths."""
    from mkdocs.structure.files import File

    root = Path(config["config_file_path"]).parent
    for name in OUTSIDE:
        if (root / name).is_file():
            files.append(File.generated(config, name, content=(root / name).read_text(encoding="utf-8")))
    for path in sorted((root / "notebooks").glob("*.ipynb")):  # their README links to them: a reader may take them home
        files.append(File.generated(config, f"notebooks/{path.name}", content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links between docs/ and the rest of the checkout to where the site has the page."""
    from_outside = page.file.src_uri in OUTSIDE
    place = page.file.src_uri if from_outside else f"docs/{page.file.src_uri}"
    return _LINK.sub(lambda match: match[1] + moved(match[2], place, page.file.src_uri) + (match[3] or "") + match[4], markdown)


def moved(link: str, place: str, shown_at: str) -> str:
    """A link written in the checkout's file `place`, as the site's page `shown_at` has to write it.

    >>> moved("../SECURITY.md", "docs/assumptions.md", "assumptions.md")
    'SECURITY.md'
    >>> moved("docs/service.md", "CHANGELOG.md", "CHANGELOG.md")
    'service.md'
    >>> moved("recordings.md", "docs/stacks.md", "stacks.md")
    'recordings.md'
    """
    target = posixpath.normpath(posixpath.join(posixpath.dirname(place), link))
    if target.startswith("docs/"):
        target = target.removeprefix("docs/")
    elif target not in OUTSIDE:
        return link
    return posixpath.relpath(target, posixpath.dirname(shown_at) or ".")
