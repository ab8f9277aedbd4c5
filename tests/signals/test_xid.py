"""What to think of an Xid."""

from __future__ import annotations

from pathlib import Path

import pytest

from minder.edge.signals.xid import find_xid_rule, load_xid_rules
from minder.model.errors import ConfigError


def test_every_rule_says_who_how_bad_and_what_to_do() -> None:
    rules = load_xid_rules()
    assert len(rules) > 80
    for code, rule in rules.items():
        assert rule.code == code and rule.source and rule.edition
        assert not (rule.evict and rule.severity != "fatal"), code


@pytest.mark.parametrize(
    ("code", "severity", "action", "evict"),
    [
        (79, "fatal", "restart_machine", True),
        (48, "fatal", "reset_gpu", True),
        (63, "info", "none", False),  # lists disagree about these three: the catalogue's own word stands
        (94, "warning", "restart_app", False),
        (109, "fatal", "reset_gpu", False),
        (13, "warning", "restart_app", False),
        (45, "info", "decode", False),
    ],
)
def test_the_catalogue(code: int, severity: str, action: str, evict: bool) -> None:
    rule = find_xid_rule(code)
    assert (rule.severity, rule.action, rule.evict) == (severity, action, evict)


def test_an_unknown_code_evicts_no_machine() -> None:
    rule = find_xid_rule(9999)
    assert (rule.severity, rule.action, rule.evict) == ("unknown", "contact_support", False)


def test_a_site_overrules_single_codes(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text(
        'source = "our site"\nedition = "2026-01"\n[[rule]]\ncodes = [94]\nseverity = "fatal"\naction = "reset_gpu"\nevict = true\n'
    )
    rules = load_xid_rules(site)
    assert find_xid_rule(94, rules).evict and find_xid_rule(94, rules).source == "our site"
    assert find_xid_rule(79, rules) == find_xid_rule(79)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[rule]", "rules"),
        ('[[rule]]\ncodes = "all"\nseverity = "info"\naction = "none"', "codes"),
        ('[[rule]]\ncodes = [1]\nseverity = "awful"\naction = "none"', "severity"),
        ('[[rule]]\ncodes = [1]\nseverity = "info"\naction = "pray"', "action"),
        ('[[rule]]\ncodes = [1]\nseverity = "info"\naction = "none"\nevict = "yes"', "evict"),
        ('[[rule]]\ncodes = [1]\nseverity = "info"\naction = "none"\nevcit = true', "evcit"),
    ],
)
def test_a_bad_site_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    site = tmp_path / "site.toml"
    site.write_text(text)
    with pytest.raises(ConfigError, match=says) as caught:
        load_xid_rules(site)
    assert "site.toml" in str(caught.value) and "\n" not in str(caught.value)
