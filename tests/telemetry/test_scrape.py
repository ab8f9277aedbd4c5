"""The built-in scraper: what a bad, slow or missing target does, and does not do to the others."""

from __future__ import annotations

import threading
import time

import pytest

from minder.ingest.sources.scrape import ScrapeSource, ScrapeTarget
from minder.model.clock import FakeClock
from minder.model.errors import IdentityError

PAGE = b"minder_cpu_usage_ratio 0.5\n"


def scrape(site, clock=None, **options):
    options.setdefault("timeout_s", 5.0)
    return ScrapeSource([ScrapeTarget("m0", site.url, "secret")], clock=clock or FakeClock(1000.0), **options)


@pytest.fixture(autouse=True)
def every_source_ends(monkeypatch):
    """Each has a thread, which would go on asking beside later tests."""
    begun, begin = [], ScrapeSource._begin
    monkeypatch.setattr(ScrapeSource, "_begin", lambda source: begun.append(source) or begin(source))
    yield
    for source in begun:
        source.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "minder-scrape"]


def test_samples_carry_the_machine_and_the_time_of_arrival(site):
    site.answer = lambda request: (200, PAGE)
    (sample,) = scrape(site, FakeClock(1234.5)).collect(1234.5)
    assert (sample.machine, sample.time_s, dict(sample.values)) == ("m0", 1234.5, {"cpu_usage_ratio": 0.5})
    assert site.requests[0][0] == "/metrics" and site.requests[0][1]["Authorization"] == "Bearer secret"


def half_with_length(request):
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(PAGE)


def half_without_length(request):
    request.send_response(200)
    request.end_headers()
    request.wfile.write(PAGE + b"minder_memory_usage_ra")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (half_with_length, "peer closed"),
        (half_without_length, "cut off"),
        (lambda request: (401, b"who?"), "the token is wrong"),
        (lambda request: (500, b""), "HTTP 500"),
        (lambda request: (200, b"\xff\xfe\n"), "decode"),
        (lambda request: (200, b"<html></html>\n"), "is no sample"),
    ],
)
def test_half_an_answer_or_none_is_absence_with_a_reason(site, answer, words):
    site.answer = answer
    source = scrape(site)
    assert source.collect(1000.0) == []
    assert words in source.failures["m0"]


def endless(asked, count, pad=""):
    """A page whose series are others each time."""

    def answer(request):
        asked.append(time.monotonic())
        lines = [f'made_up_{index}{{of="{len(asked)}{pad}"}} 1' for index in range(count)]
        return 200, ("\n".join(lines) + "\nminder_cpu_usage_ratio 0.5\n").encode()

    return answer


@pytest.mark.lab
def test_a_machine_whose_series_change_without_end_fills_no_memory(site):
    asked = []
    site.answer = endless(asked, 6000)
    clock = FakeClock(1000.0)
    source, rounds = scrape(site, clock), []
    for _ in range(6):
        rounds.append(source.collect(clock.now_s()))
        clock.sleep(1.0)
    assert [len(samples) for samples in rounds] == [1, 1, 1, 0, 0, 0] and len(asked) >= 4
    assert "series are new" in source.failures["m0"] and len(source._translator._bindings) < 20_000
    site.answer = lambda request: (200, PAGE)
    assert _until(lambda now_s: source.collect(now_s)) and source.failures == {}, "what it said before is forgiven"


def test_a_page_of_megabytes_is_not_read_every_second_and_one_that_is_too_large_not_at_all(site):
    asked = []
    site.answer = endless(asked, 100, pad="x" * 30_000)
    source = scrape(site)
    assert [len(source.collect(1000.0 + second)) for second in range(4)] == [1, 0, 0, 0] and len(asked) == 1
    site.answer = endless(asked, 100, pad="x" * 50_000)
    source = scrape(site)
    assert source.collect(1000.0) == [] and "larger than 4 MiB" in source.failures["m0"]


def test_who_refused_and_answers_again_is_seen_in_the_same_round(site):
    def answer_slowly(request):
        time.sleep(0.1)
        return 200, PAGE

    clock = FakeClock(1000.0)
    source = scrape(site, clock)
    for _ in range(2):
        site.answer = lambda request: (500, b"")
        assert source.collect(clock.now_s()) == [] and "HTTP 500" in source.failures["m0"]
        clock.sleep(5.0)
        site.answer = answer_slowly
        assert [sample.machine for sample in source.collect(clock.now_s())] == ["m0"] and source.failures == {}
        clock.sleep(5.0)


def _until(collect):
    for second in range(1, 200):
        found = collect(1000.0 + second)
        if found:
            return found
        time.sleep(0.02)
    return []


def test_a_hung_target_does_not_keep_the_others_and_speaks_when_it_can(site):
    release = threading.Event()

    def answer(request):
        if request.path.startswith("/slow"):
            release.wait(30.0)
        return 200, PAGE

    site.answer = answer
    targets = [ScrapeTarget("quick", site.url), ScrapeTarget("slow", site.url + "/slow")]
    source = ScrapeSource(targets, timeout_s=0.5, clock=FakeClock(1000.0))
    assert {sample.machine for sample in _until(source.collect)} == {"quick"}
    release.set()
    names = {sample.machine for sample in _until(lambda now_s: [s for s in source.collect(now_s) if s.machine == "slow"])}
    assert names == {"slow"}
    source.close()


def test_a_round_comes_once_per_interval(site):
    site.answer = lambda request: (200, PAGE)
    source = scrape(site, interval_s=15.0)
    for second in range(60):
        source.collect(1005.0 + second)
    assert len(site.requests) in (4, 5)


def test_in_the_background_it_keeps_the_pace_by_itself(site):
    site.answer = lambda request: (200, PAGE)
    source = ScrapeSource([ScrapeTarget("m0", site.url)], interval_s=0.05, timeout_s=5.0)
    source.start()
    times = []
    for _ in range(500):
        times.extend(sample.time_s for sample in source.collect(time.time()))
        if len(times) >= 4:
            break
        time.sleep(0.02)
    source.close()
    assert len(times) >= 4 and times == sorted(set(times))


def test_two_targets_that_speak_for_one_machine_are_an_error(site):
    site.answer = lambda request: (200, PAGE)
    clock = FakeClock(1000.0)
    source = ScrapeSource([ScrapeTarget("m0", site.url + "/a"), ScrapeTarget("m0", site.url + "/b")], timeout_s=5.0, clock=clock)
    with pytest.raises(IdentityError, match="both map to machine m0"):
        source.collect(1000.0)


def test_a_token_is_not_shown():
    assert "secret" not in repr(ScrapeTarget("m0", "http://x", "secret"))
