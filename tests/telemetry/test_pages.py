"""Pages that come again and again: read and translated the quick way, they say what the slow way says, to the last bit."""

from __future__ import annotations

import random

import pytest

from minder.ingest.sources.exposition import PageReader, parse_exposition
from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.mapping import MetricMapping, load_mapping
from minder.ingest.sources.translate import Page, RawSeries, Translator
from minder.model.errors import IdentityError, SourceError

MAPPING = MetricMapping.model_validate(
    {
        "prefix": "minder_",
        "device": "device",
        "saturating": ["link_errors_per_second"],
        "rule": [
            {"metric": "cpu_usage_ratio", "series": ["busy_seconds"], "over": ["all_seconds"], "kind": "counter"},
            {"metric": "memory_usage_ratio", "series": ["free_ratio"], "complement": True},
            {"metric": "gpu_power_draw_watts", "series": ["good_watts"], "device": "device"},
            {"metric": "gpu_power_draw_watts", "series": ["poor_milliwatts"], "scale": 0.001, "device": "device"},
            {"metric": "tcp_throughput_bytes_per_second", "series": ["in_bytes", "out_bytes"], "kind": "counter", "device": "device"},
        ],
    }
)
GAUGES = ["free_ratio", "good_watts", "poor_milliwatts", "minder_gpu_temperature_celsius", "minder_gpu_duty_cycle_ratio", "nobodys"]
COUNTERS = ["busy_seconds", "all_seconds", "in_bytes", "out_bytes", "minder_link_errors_total", "minder_steps_total"]
DEVICES = ["", '{device="gpu0"}', '{device="gpu1"}', '{device="a b\\"c"}', '{a="1",device="gpu1"}']


def a_page(dice, lines, counts):
    """One exposition of these series; counters grow, and are sometimes set back or stopped at their top."""
    text = []
    for line in lines:
        counts[line] = counts.get(line, 0.0) + dice.choice([0.0, 1.0, 2.5])
        if line.split("{")[0] in COUNTERS:
            counts[line] = 0.0 if dice.random() < 0.03 else counts[line]
            value = repr(counts[line]) if dice.random() > 0.03 else "65535"
        else:
            value = dice.choice(["0.5", "1e3", "NaN", "+Inf", "2147483632", "9223372036854775794", "3.0", "-1", "2e10", "0.25"])
        text.append(f"{line} {value}")
        if dice.random() < 0.01:
            text.append(f"# HELP {line} of {value}")
    return "\n".join(text) + "\n"


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.release) for seed in range(3, 12))])
def test_the_quick_way_says_what_the_slow_way_says(seed):
    dice = random.Random(seed)
    series = [name + device for name in GAUGES + COUNTERS for device in DEVICES]
    shown = {machine: dice.sample(series, 30) for machine in ("m0", "m1")}
    counts = {"m0": {}, "m1": {}}
    slow, quick, reader = Translator(MAPPING, MachineMap()), Translator(MAPPING, MachineMap()), PageReader()
    now_s, total = 1000.0, 0
    for _ in range(150):
        now_s += dice.choice([1.0, 1.0, 1.0, 15.0, 0.0, -30.0, 400.0, -100.0] if dice.random() < 0.2 else [1.0])
        raws, pages = [], []
        for machine, lines in shown.items():
            if dice.random() < 0.1:  # a device comes, goes, or stands elsewhere
                lines[:] = dice.sample(series, dice.randrange(1, 40)) if dice.random() < 0.5 else dice.sample(lines, len(lines))
            if dice.random() < 0.1:
                continue
            text, whose = a_page(dice, lines, counts[machine]), {"machine": machine, "instance": f"http://{machine}"}
            at_s = now_s + dice.choice([0.0, 0.25])
            raws += [RawSeries(name, {**own, **whose}, ((at_s, value),)) for name, own, value in parse_exposition(text)]
            pages.append(Page(whose, *place(reader.read(text), at_s)))
        expected, found = slow.translate(raws), quick.translate_pages(pages)
        assert found == expected
        total += sum(len(sample.values) for sample in found)
    assert total > 500


def place(read, time_s):
    layout, values = read
    return layout, time_s, values


def test_the_quick_way_is_taken_for_a_page_that_comes_again():
    """Else the test above would prove nothing."""
    reader, translator = PageReader(), Translator(load_mapping("minder"), MachineMap())
    for second in range(5):
        page = Page({"machine": "m0", "instance": "m0"}, *place(reader.read(f"minder_cpu_usage_ratio 0.{second + 1}\n"), 10.0 + second))
        if second:
            translator.translate = None  # the slow way would fail now
        (sample,) = translator.translate_pages([page])
        assert sample.values == {"cpu_usage_ratio": pytest.approx(0.1 * (second + 1))}


@pytest.mark.parametrize(
    "text",
    [
        'a 1\nb{c="d e"} 2\n',
        "# HELP a b c\n# TYPE a gauge\na 1\n",
        "a\t1\nb 2 1700000000\n",
        "a 1\n\nb 2\n",
        "#\na 1\n",
        "a 1 \n",
        'a{x="1 2"} NaN\n',
        "",
        "\n",
        "#only this\n",
    ],
)
def test_the_second_reading_of_a_page_is_like_the_first(text):
    reader = PageReader()
    for _ in range(3):
        layout, values = reader.read(text)
        found = [(name, dict(labels), value) for (name, labels), value in zip(layout.series, values, strict=True)]
        assert repr(found) == repr(parse_exposition(text))


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ('a{b="c"} 1\nd 2', "cut off"),
        ('a{b="c"} 1\nd ', "cut off"),
        ('a{b="c"} 1\nd', "cut off"),
        ('a{b="c"} 1\nd x\n', "line 2"),
        ('a{b="c"} 1\nd \n', "line 2"),
        ('a{b="c" 1\nd 2\n', "line 1"),
        ('a{b="c"} 1\n d 2\n', "line 2"),
        ('a{b="c"} 1\nd 2\nhalf', "cut off"),
        ('a{b="c"} 1\nd 2\n\x00 3\n', "line 3"),
    ],
)
def test_a_page_that_is_known_does_not_hide_half_an_answer(broken, words):
    reader = PageReader()
    for _ in range(2):
        reader.read('a{b="c"} 1\nd 2\n')
    for _ in range(2):
        with pytest.raises(SourceError, match=words):
            reader.read(broken)


def test_pages_that_are_never_alike_are_not_kept_for_ever():
    reader = PageReader()
    for number in range(5000):
        reader.read(f'a{{b="{number}"}} 1\n')
    assert len(reader._layouts) <= 2000


def test_two_targets_that_take_turns_are_found_on_known_pages_too():
    reader, translator = PageReader(), Translator(load_mapping("minder"), MachineMap())

    def pages(second, *instances):
        read = reader.read("minder_cpu_usage_ratio 0.5\n")
        return [Page({"machine": "m0", "instance": name}, *place(read, second)) for name in instances]

    for second in range(3):
        assert translator.translate_pages(pages(float(second), "a"))
    assert translator.translate_pages(pages(10.0, "b"))  # it moved
    with pytest.raises(IdentityError, match="both map to machine m0"):
        translator.translate_pages(pages(20.0, "a"))
