"""`make bench` types every script's name and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).resolve().parents[1] / "bench").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_measurement_demands_no_argument(script: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.Call)]
    arguments = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"]
    for call in arguments:
        name = ast.literal_eval(call.args[0])
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        assert "required" not in given, f"{script.name}: {name} is required"
        optional = isinstance(given.get("nargs"), ast.Constant) and given["nargs"].value in ("?", "*")
        assert name.startswith("-") or optional, f"{script.name}: {name} must be given"
