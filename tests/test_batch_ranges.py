import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minder.model.batch_ranges import BatchRangesError, batch_of_step, format_ranges, parse_ranges

NUMBERS = st.sets(st.integers(0, 40))


@given(NUMBERS)
def test_ranges_survive_their_text(numbers: set[int]) -> None:
    ranges = parse_ranges(format_ranges(range(number, number + 1) for number in numbers))
    assert {batch for one in ranges for batch in one} == numbers
    assert all(left.stop < right.start for left, right in itertools.pairwise(ranges))


@given(NUMBERS, st.integers(1, 60))
def test_a_step_consumes_the_next_batch_that_is_not_skipped(numbers: set[int], step: int) -> None:
    kept = [batch for batch in range(200) if batch not in numbers]
    assert batch_of_step(step, parse_ranges(format_ranges(range(number, number + 1) for number in numbers))) == kept[step - 1]


@pytest.mark.parametrize("text", ["one", "3-1", "-4", "1-", "1-2-3", "1.5"])
def test_a_text_that_names_no_batches_is_refused(text: str) -> None:
    with pytest.raises(BatchRangesError, match="names no batches"):
        parse_ranges(f"7,{text}")
