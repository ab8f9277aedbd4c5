"""One counter of steps out of numbers that may begin again with each epoch."""

from __future__ import annotations

__all__ = ["StepCounter"]

_BEHIND = 2  # strides: another rank that prints a little later is that far behind


class StepCounter:
    """`count` turns the number in a line into one that only counts up, and `began_again` says that the last number was a job's
    that began again from a checkpoint.

    A number that falls back to its beginning is a new epoch's; one that falls a little is another rank's, and no news.
    """

    def __init__(self) -> None:
        self.base = 0  # steps of the epochs before
        self.began_again = False
        self._last: int | None = None
        self._epoch: int | None = None
        self._total: int | None = None
        self._even = True  # all epochs had the same number of steps
        self.stride = 0  # the smallest distance between two numbers, 0 before there were two

    def count(
        self,
        number: int,
        total: int | None = None,
        epoch: int | None = None,
        epoch_base: int | None = None,
        by_epoch: bool | None = None,
        may_begin_again: bool = True,
    ) -> int | None:
        """The step; None for no news. by_epoch: whether the numbers begin again with each epoch, None where that is unknown.
        may_begin_again: False where it is too early for a restart, so that a number that falls is another rank's.

        >>> counter = StepCounter()
        >>> [counter.count(number, 100) for number in (10, 50, 100, 10, 9)]
        [10, 50, 100, 110, None]
        """
        self.began_again = False
        if epoch_base is not None and epoch is not None and total is not None and self._is_even(total):
            self.base = max(0, epoch - epoch_base) * total
        elif self._last is None:
            self.base += max(0, epoch - 1) * total if by_epoch and epoch is not None and total is not None else 0
        elif self._is_new_epoch(number, epoch, by_epoch):
            self.base += self._length(number, epoch)
        elif number < self._last:
            if not may_begin_again or self._last - number < _BEHIND * max(1, self.stride):
                return None
            self.began_again = True
        if self._last is not None and number > self._last:
            self.stride = min(self.stride or number, number - self._last)
        self._last, self._epoch, self._total = number, epoch, total
        return self.base + number

    def _is_even(self, total: int) -> bool:
        self._even = self._even and self._total in (None, total)
        return self._even

    def _is_new_epoch(self, number: int, epoch: int | None, by_epoch: bool | None) -> bool:
        assert self._last is not None
        if by_epoch is False:
            return False
        if epoch is not None and self._epoch is not None:
            return epoch > self._epoch and (number < self._last or by_epoch is True)
        return number <= max(1, self.stride) and self._last - number >= _BEHIND * max(1, self.stride)

    def _length(self, number: int, epoch: int | None) -> int:
        """Steps between the beginnings of the last number's epoch and of this one's."""
        assert self._last is not None
        reached = self._last + (number == 0)
        if self._total is None or self._last + _BEHIND * max(1, self.stride) < self._total:
            return reached
        return self._total * max(1, (epoch or 0) - (self._epoch or 0))
