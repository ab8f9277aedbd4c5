"""Prometheus' text format."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from minder.ingest.sources.exposition import parse_exposition
from minder.model.errors import SourceError


def test_it_reads_what_the_official_parser_reads():
    registry = CollectorRegistry()
    gauge = Gauge("odd", 'help with "quotes"', ["path", "name"], registry=registry)
    gauge.labels('C:\\new\\"x"', "two\nlines, {braces} = 1").set(1.5e-7)
    gauge.labels("", "ä").set(float("nan"))
    Counter("events", "", registry=registry).inc(3)
    Histogram("h", "", registry=registry).observe(0.3)
    text = generate_latest(registry).decode()
    official = [(s.name, s.labels, repr(s.value)) for family in text_string_to_metric_families(text) for s in family.samples]
    assert [(name, labels, repr(value)) for name, labels, value in parse_exposition(text)] == official


def test_time_stamps_comments_and_empty_lines_are_passed_over():
    assert parse_exposition("# HELP a b\n\na 1 1700000000000\nb{} +Inf\n") == [("a", {}, 1.0), ("b", {}, float("inf"))]


@pytest.mark.parametrize("text", ["a 1\nb 2", "<html>no</html>\n", "a{b=1} 2\n", "a one\n", 'a{b="c} 1\n'])
def test_half_an_answer_or_none_is_an_error(text):
    with pytest.raises(SourceError):
        parse_exposition(text)
