"""Inputs rebuilt from public reports, as they are typed: what is printed, and who may be evicted."""

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
    status = main(["stacks", str(tmp_path)])
    output = capsys.readouterr()
    assert status == expected.get("exit", 0)
    assert expected.get("stderr_names", "") in output.err
    if status:
        return
    document = json.loads(output.out)
    assert document["evict"] == expected.get("evict", document["evict"])
    assert document["blame"] in expected.get("blame", [document["blame"]])
    assert {suspect["machine"] for suspect in document["suspects"]} >= set(expected.get("suspects", []))
    assert expected.get("because_names", "") in document["because"]
