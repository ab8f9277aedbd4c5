"""The reference is what the code would write."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the serve extra: pip install 'minder-cluster[serve]'")

ROOT = Path(__file__).resolve().parents[2]


def generator() -> Any:
    return script("docs/tools/generate.py")


def script(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cli.md", "configuration.md", "api.md"])
def test_the_reference_is_up_to_date(name: str) -> None:
    generate = generator()
    write = {"cli.md": generate.cli_page, "configuration.md": generate.configuration_page, "api.md": generate.api_page}[name]
    stored = (ROOT / "docs/reference" / name).read_text(encoding="utf-8")
    assert stored == write().rstrip() + "\n", "run `make reference` and commit what it writes"


def test_every_setting_says_what_it_means_in_words_of_toml() -> None:
    rows = [line for line in (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(rows) > 80
    assert [row for row in rows if re.search(r"\|\s*\|$", row)] == [], "say it in the docstring of its model, as `key: meaning.`"
    assert [row for row in rows if re.search(r"\bNone\b|tuple\[|\\\||'[a-z]+'\]", row)] == []


def test_a_docstring_is_split_where_it_begins_to_speak_of_a_key() -> None:
    text = "What it is. url: where, as in http://a:1. cert, key: both or neither; see there."
    from serve.contract import split_meanings

    about, said = split_meanings(text, ["url", "cert", "key"])
    assert about == "What it is."
    assert said == {"url": "where, as in http://a:1", "cert": "both or neither; see there", "key": "both or neither; see there"}


@pytest.mark.parametrize("model", ["reference", "reference-int"])
def test_a_models_card_says_what_its_script_would(model: str) -> None:
    about = script("models/fit_reference.py").ABOUT
    assert about in (ROOT / "models" / model / "card.md").read_text(encoding="utf-8")
    assert all(f"**{word}**" in about for word in ("For", "How well", "Limits", "Licence"))
