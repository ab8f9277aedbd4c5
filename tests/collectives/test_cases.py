"""Inputs rebuilt from public reports, as they are typed: `minder collectives`."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from minder.cli import main

CASES = Path(__file__).parent / "data" / "cases"
NAMES = sorted(path.stem for path in CASES.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_a_public_case_gives_its_expected_answer(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text())
    with tarfile.open(CASES / f"{name}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    assert main(["collectives", str(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    for key in ("suspect_ranks", "cause", "missing_ranks"):
        assert document[key] == expected.get(key, document[key])
    for item, wanted in zip(document["order"], expected.get("order", []), strict=False):
        assert {key: item[key] for key in wanted} == wanted
    assert main(["collectives", str(tmp_path), "--format", "table"]) == 0
    assert expected.get("table_names", "") in capsys.readouterr().out
