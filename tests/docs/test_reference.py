"""The reference is what the code would write."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the serve extra: pip install 'minder-cluster[serve]'")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["cli.md", "configuration.md", "api.md"])
def test_the_reference_is_up_to_date(name: str) -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/tools/generate.py")
    assert spec is not None and spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    write = {"cli.md": generate.cli_page, "configuration.md": generate.configuration_page, "api.md": generate.api_page}[name]
    stored = (ROOT / "docs/reference" / name).read_text(encoding="utf-8")
    assert stored == write().rstrip() + "\n", "run `make reference` and commit what it writes"
