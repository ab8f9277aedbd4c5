"""The documentation site: strict, whole, and without a network (mkdocs.yml)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="needs the docs extra: pip install 'minder-cluster[docs]'")
pytest.importorskip("material", reason="needs the docs extra: pip install 'minder-cluster[docs]'")

ROOT = Path(__file__).resolve().parents[2]


def build(checkout: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False, timeout=240)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    answer = build(ROOT, out)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return out


@pytest.mark.lab
def test_the_site_builds_without_a_warning_and_has_every_page(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    names = [page.with_name("index.html") if page.name == "README.md" else page.with_suffix(".html") for page in pages]
    assert names
    assert [str(name) for name in names if not (site / name).is_file()] == []


@pytest.mark.lab
def test_the_site_needs_no_network(site: Path) -> None:
    """Whatever a page loads (scripts, styles, pictures, fonts) lies beside it; links that a reader clicks may lead out."""
    loads = re.compile(
        r"""<(?:script|img|iframe|link(?=[^>]*rel="(?:stylesheet|preload|icon|shortcut icon|preconnect)"))[^>]*(?:src|href)="(https?:)?//"""
    )
    found = [page.name for page in site.rglob("*.html") if loads.search(page.read_text(encoding="utf-8"))]
    styles = [page.name for page in site.rglob("*.css") if re.search(r"@import|url\([\"']?https?:", page.read_text(encoding="utf-8"))]
    assert found + styles == []


def test_every_page_is_in_the_contents_once(site: Path) -> None:
    listed = re.findall(r"^\s+- ([\w./-]+\.md)\s*$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(listed) == len(set(listed))
    present = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    present = {name for name in present if not name.startswith("adr/0")}  # adr/README.md lists them
    assert present - set(listed) == set(), "a new page: give it a line in the contents of mkdocs.yml"


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs/tools", tmp_path / "docs/tools")
    shutil.copytree(ROOT / "docs/assets", tmp_path / "docs/assets")
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text(contents[: contents.index("\nnav:") + 1], encoding="utf-8")
    (tmp_path / "SECURITY.md").write_text("# Security\n", encoding="utf-8")
    (tmp_path / "docs/index.md").write_text(
        "# Page\n\n[nowhere](gone.md), [no part](../SECURITY.md#gone), [outside](../pyproject.toml)\n", encoding="utf-8"
    )
    answer = build(tmp_path, tmp_path / "out")
    assert answer.returncode != 0
    assert all(name in answer.stdout + answer.stderr for name in ("'gone.md'", "#gone", "pyproject.toml")), answer.stdout + answer.stderr
