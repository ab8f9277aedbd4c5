"""The reference is what the code would write."""

from __future__ import annotations

import importlib.util
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

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


def tables_of(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model and those of its fields, however they are wrapped."""
    yield model
    parts = [field.annotation for field in model.model_fields.values()]
    while parts:
        part = parts.pop()
        if isinstance(part, type) and issubclass(part, BaseModel):
            yield from tables_of(part)
        parts += typing.get_args(part)


def test_every_table_of_a_configuration_has_its_section(monkeypatch: pytest.MonkeyPatch) -> None:
    from minder.config import JobConfig
    from serve.settings_file import ServiceFile

    generate, shown = generator(), []
    write = generate._tables
    monkeypatch.setattr(generate, "_tables", lambda tables, heading="##": shown.extend(tables) or write(tables, heading))
    page = generate.configuration_page()
    missing = {model.__name__ for root in (JobConfig, ServiceFile) for model in tables_of(root)} - {model.__name__ for _, _, model in shown}
    assert missing == set()
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    assert len(titles) == len(set(titles)), "two sections of one name cannot be linked to"


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
