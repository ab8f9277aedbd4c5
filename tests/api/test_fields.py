from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from minder.record.api.access import ROLES, contains
from minder.record.api.fields import JobName, MachineName, Text


@pytest.mark.parametrize("given", ["", " ", "\t\n", "bell \a", "half \ud800", "nul \0", "x" * 2001])
def test_text_is_printable_and_says_something(given: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Text).validate_python(given)


def test_text_may_be_of_any_script_and_have_lines() -> None:
    assert TypeAdapter(Text).validate_python(" Lüfter defekt,\n風扇 ") == "Lüfter defekt,\n風扇"


@pytest.mark.parametrize("given", ["", "../etc", "a/b", "a b", "-a", ".a", "a\n", "a\0", "é"])
def test_names_are_no_paths(given: str) -> None:
    for kind in (JobName, MachineName):
        with pytest.raises(ValidationError):
            TypeAdapter(kind).validate_python(given)


def test_roles_contain_one_another_but_not_those_of_machines() -> None:
    table = {role: [other for other in ROLES if contains(role, other)] for role in ROLES}
    assert table == {
        "viewer": ["viewer"],
        "operator": ["viewer", "operator"],
        "admin": ["viewer", "operator", "admin"],
        "agent": ["agent"],
        "launcher": ["launcher"],
        "source": ["source"],
    }
