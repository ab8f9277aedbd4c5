"""What is known of each machine right now: fresh samples told from held ones, stuck sensors, silence.

A grid row repeats a machine's last sample until the next one comes (minder.windows). Only a change is news: evidence grows by
news, never by repetition. A value that repeats far longer than this metric usually does is a stuck sensor: no data.
"""

from __future__ import annotations

import numpy as np

from minder.detectors.memory import Memory
from minder.detectors.traits import TraitTable

__all__ = ["FIELDS", "Seen", "observe_row"]

FIELDS: dict[str, tuple[str, float]] = {
    "last_KM": ("KM", np.nan),  # last raw value
    "repeats_KM": ("KM", 0.0),  # rows for which it has stood
    "changes_K": ("K", 0.0),  # decayed count of changed, and of all, values of a metric: how lively it is
    "values_K": ("K", 0.0),
    "top_K": ("K", -np.inf),  # the highest value ever seen: a power cap, a full link; standing there is natural
    "heard_M": ("M", np.nan),  # time of the last row with any data
    "first_M": ("M", np.nan),
    "row_s": ("", np.nan),  # time of the last row
    "gap_s": ("", np.nan),  # usual gap between rows
    "news_M": ("M", np.nan),  # time of the last row with news
    "interval_M": ("M", np.nan),  # usual time between news
}
_DECAY = 0.998
_PROOF = 1e-4  # a run of repeats this unlikely is a stuck sensor


class Seen:
    """One row: usable_KM (there is a trustworthy value), news_KM (it is fresh), gap_s since the last row, silence_M in s."""

    __slots__ = ("gap_s", "interval_s", "news_KM", "silence_M", "since_news_M", "usable_KM")

    def __init__(self, usable_KM: np.ndarray, news_KM: np.ndarray, gap_s: float, interval_s: float) -> None:
        self.usable_KM = usable_KM
        self.news_KM = news_KM
        self.gap_s = gap_s
        self.interval_s = interval_s
        self.silence_M = np.zeros(0)
        self.since_news_M = np.zeros(0)


def observe_row(memory: Memory, traits: TraitTable, time_s: float, raw_KM: np.ndarray, present_M: np.ndarray) -> Seen:
    """Update what is known by one row. raw_KM in base units."""
    gap_s = _row_gap(memory, time_s)
    has_KM = np.isfinite(raw_KM)
    last_KM = memory["last_KM"]
    same_KM = has_KM & (raw_KM == last_KM)
    news_KM = has_KM & ~same_KM
    memory["top_K"] = np.maximum(memory["top_K"], np.where(has_KM, raw_KM, -np.inf).max(axis=1, initial=-np.inf))
    natural_KM = (raw_KM == 0.0) | (raw_KM >= np.minimum(traits.high_K1, memory["top_K"][:, None]))
    memory["repeats_KM"] = np.where(same_KM, memory["repeats_KM"] + 1.0, 0.0)
    usable_KM = has_KM & ~_stuck(memory, natural_KM)
    memory["changes_K"] = memory["changes_K"] * _DECAY + np.count_nonzero(news_KM & ~natural_KM, axis=1)
    memory["values_K"] = memory["values_K"] * _DECAY + np.count_nonzero(has_KM & ~natural_KM, axis=1)
    memory["last_KM"] = np.where(has_KM, raw_KM, last_KM)
    any_news_M = news_KM.any(axis=0)
    since_M = _note_news(memory, time_s, any_news_M, gap_s)
    heard_M = present_M | has_KM.any(axis=0)
    memory["heard_M"] = np.where(heard_M, time_s, memory["heard_M"])
    memory["first_M"] = np.where(np.isnan(memory["first_M"]) & heard_M, time_s, memory["first_M"])
    interval_M = memory["interval_M"]
    known_M = interval_M[~np.isnan(interval_M)]
    seen = Seen(usable_KM, news_KM, gap_s, float(np.median(known_M)) if len(known_M) else gap_s)
    seen.silence_M = time_s - memory["heard_M"]
    seen.since_news_M = since_M
    return seen


def _row_gap(memory: Memory, time_s: float) -> float:
    """Seconds since the last row, at most three usual gaps: a hole in the data is not time in which anything was seen."""
    last_s, usual_s = memory.number("row_s"), memory.number("gap_s")
    memory.set_number("row_s", time_s)
    if np.isnan(last_s) or time_s <= last_s:
        return 1.0 if np.isnan(usual_s) else usual_s
    gap_s = time_s - last_s
    memory.set_number("gap_s", gap_s if np.isnan(usual_s) else usual_s + 0.1 * (min(gap_s, 3 * usual_s) - usual_s))
    return gap_s if np.isnan(usual_s) else min(gap_s, 3 * usual_s)


def _note_news(memory: Memory, time_s: float, any_news_M: np.ndarray, gap_s: float) -> np.ndarray:
    """Seconds from each machine's last news to this row's; learns the machines' scrape intervals."""
    before_M = memory["news_M"]
    since_M = np.where(np.isnan(before_M), gap_s, time_s - before_M)
    usual_M = memory["interval_M"]
    known_M = any_news_M & ~np.isnan(before_M)
    step_M = np.where(np.isnan(usual_M), since_M, usual_M + 0.1 * (np.minimum(since_M, 3 * usual_M) - usual_M))
    memory["interval_M"] = np.where(known_M, step_M, usual_M)
    memory["news_M"] = np.where(any_news_M, time_s, before_M)
    return np.asarray(since_M)


def _stuck(memory: Memory, natural_KM: np.ndarray) -> np.ndarray:
    """Repeats so long that a sensor as lively as this metric's (on all machines) would show them once in 10,000."""
    repeats_KM = memory["repeats_KM"]
    if repeats_KM.max(initial=0.0) < 2:
        return np.zeros(natural_KM.shape, dtype=bool)
    values_K1, changes_K1 = memory["values_K"][:, None], memory["changes_K"][:, None]
    repeat_share_K1 = np.clip(1.0 - changes_K1 / np.maximum(values_K1, 1.0), 0.02, 0.999)
    longest_K1 = np.maximum(np.log(_PROOF) / np.log(repeat_share_K1), 2.5)
    return np.asarray((repeats_KM > longest_K1) & ~natural_KM & (values_K1 > 20))
