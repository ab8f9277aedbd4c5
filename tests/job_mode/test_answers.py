"""Most of a job dark at once: who is still to come back, and for how long that is believed."""

from __future__ import annotations

from minder.diagnose.job_mode.answers import Outage

ALL = frozenset({"m0", "m1", "m2", "m3"})


def test_who_is_not_back_a_minute_after_most_others_returns_no_more() -> None:
    outage = Outage()
    assert all(outage.update(ALL, 4, float(at_s)) for at_s in range(10))
    assert outage.returning == ALL
    assert not outage.update(frozenset({"m1", "m2"}), 4, 12.0)
    assert outage.returning == {"m1", "m2"}
    assert not outage.update(frozenset({"m2"}), 4, 20.0) and outage.returning == {"m2"}
    assert not outage.update(frozenset({"m2"}), 4, 70.0) and outage.returning == set()


def test_a_moment_in_which_nobody_is_heard_is_no_outage() -> None:
    outage = Outage()
    assert outage.update(ALL, 4, 0.0) and outage.update(ALL, 4, 1.0)
    assert not outage.update(frozenset({"m3"}), 4, 2.0)
    assert outage.returning == set()
