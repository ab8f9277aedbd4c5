from __future__ import annotations

import pytest

from minder.model.errors import BadInputError
from minder.record.incidents.spans import format_span, parse_span


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("2h", 7200), ("1h30m", 5400), ("7d", 604_800), ("0.5h", 1800), (" 1w ", 604_800)]
)
def test_spans_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_span(text, "--for") == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "2 hours", "-2h", "0s", "2h!", "99999d", "1e3s"])
def test_anything_else_is_one_line_that_names_the_option(text: str) -> None:
    with pytest.raises(BadInputError, match=r"--for .* is no length of time: write 90s"):
        parse_span(text, "--for")


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0.04, "0.0 s"), (59.94, "59.9 s"), (60, "1m"), (3661, "1h1m"), (604_800, "7d")]
)
def test_spans_as_people_read_them(seconds: float | None, text: str) -> None:
    assert format_span(seconds) == text
