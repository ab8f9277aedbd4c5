from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from minder.model.errors import BadInputError
from minder.model.evidence import Evidence
from minder.offline.reliability.page import render_report, write_report
from minder.offline.reliability.pictures import DEPARTURES, HOURS, LOSSES, POOL
from minder.record.api.track_record import DEFINITIONS
from minder.record.incidents import kinds

ATTACK = '<script>alert("x")</script>$\\frac{'


class Tags(HTMLParser):
    """Names of all tags, and whatever would be fetched from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href") and not (value or "").startswith("data:")]


def read(page: str) -> tuple[Tags, str]:
    tags = Tags()
    tags.feed(page)
    return tags, re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>|base64,[^\"]*", "", page)))


def test_the_page_tells_the_story_and_needs_nothing_from_elsewhere(story: Any) -> None:
    story.register(0.0, first_step_s=60.0)
    first, second = story.hang(1000.0), story.hang(5000.0)
    story.hang(9000.0, "m1")
    story.ledger.append(kinds.OUTCOME, {"machine": "m2", "outcome": "no-fault-found"}, incident=second)
    story.end(14_400.0)
    page = render_report(story.account(0.0, 20_000.0))
    tags, text = read(page)
    assert tags.fetched == [] and "script" not in tags.names
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    assert captions == [HOURS, LOSSES, DEPARTURES] and tags.names.count("img") == 3
    assert "ETTR 0.9688" in text
    assert f"m2 2 stall 1 unknown, 1 no-fault-found {first}, {second}" in text
    assert "3 evictions, and 0 in a dry run. 1 of 1 examined had no fault; of 2 the outcome is unknown" in text
    assert "it stands still" in text
    assert all(meaning in unescape(text) for meaning in DEFINITIONS.values()), "each figure stands beside its definition"
    assert "too short a time to say anything of a day" in text and "with the rate" not in text


@pytest.mark.lab
def test_a_long_period_has_a_picture_of_its_pool_and_hours_have_none(story: Any) -> None:
    story.register(0.0, first_step_s=60.0)
    story.hang(1000.0)
    assert POOL not in render_report(story.account(0.0, 20_000.0))
    story.end(30 * 86_400.0)
    assert f"<figcaption>{POOL}</figcaption>" in render_report(story.account(0.0, 31 * 86_400.0))


def test_what_machines_say_is_never_markup(story: Any, tell: Any) -> None:
    hostile = tell(ATTACK)
    hostile.register(0.0, first_step_s=0.0)
    incident = hostile.verdict(1000.0, 1030.0, ATTACK, cause=ATTACK, evidence=(Evidence("log", ATTACK, ATTACK),))
    hostile.evict(incident, 1040.0, 1090.0, ATTACK)
    hostile.step_again(incident, 1110.0)
    hostile.ledger.append(kinds.OUTCOME, {"machine": ATTACK, "outcome": "no-fault-found"}, incident=incident)
    hostile.evict(hostile.verdict(2000.0, 2030.0, "\ud800"), 2040.0, 2090.0, "\ud800")
    page = render_report(hostile.account(0.0, 9000.0))
    tags, text = read(page)
    assert not {"script", "frac"} & set(tags.names)
    assert "&lt;script&gt;" in page and "alert(&quot;x&quot;)" in text


def test_an_empty_period_is_no_data_and_not_health(story: Any) -> None:
    page = render_report(story.account(0.0, 1000.0))
    assert "no data, not health" in page and "ETTR 1" not in page
    story.verdict(100.0, 130.0)
    assert "not known" in read(render_report(story.account(0.0, 1000.0)))[1]


def test_a_file_that_cannot_be_written_is_reported(story: Any, tmp_path: Path) -> None:
    story.hang(100.0)
    account = story.account(0.0, 1000.0)
    with pytest.raises(BadInputError, match="--out"):
        write_report(account, tmp_path / "nowhere" / "report.html")
    write_report(account, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
