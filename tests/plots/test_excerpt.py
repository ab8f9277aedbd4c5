from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from minder.model.telemetry import ExcerptPanel, TelemetryExcerpt
from minder.offline.plots.excerpt import describe_panel, draw_excerpt, draw_panel

SVG = "{http://www.w3.org/2000/svg}"
FLAT = (540.0,) * 4


def excerpt(line: tuple[float | None, ...] = (540.0, 540.0, 130.0, 131.0), machine: str = "node-2") -> TelemetryExcerpt:
    panel = ExcerptPanel((530.0, 531.0, None, 530.0), (540.0, 541.0, None, 540.0), (550.0, 551.0, None, 550.0), line)
    return TelemetryExcerpt(machine, 120.0, 128.0, 7, (0.0, 60.0, 124.0, 180.0), {"gpu_power_draw_watts": panel})


def classes(text: str) -> list[str]:
    return [item.get("class") or item.tag for item in ElementTree.fromstring(text).iter()]


def test_a_panel_has_band_line_and_marks_and_says_it_in_words() -> None:
    text = draw_panel(excerpt(), "gpu_power_draw_watts")
    found = classes(text)
    assert found.count("x-band") == 2 and found.count("x-line") == 1  # the band has a gap, the machine none
    assert {"fault", "verdict"} <= set(ElementTree.fromstring(text).itertext())
    assert "node-2 had 540 W before and 130 W after" in (ElementTree.fromstring(text).get("aria-label") or "")
    assert "style" not in text  # a page forbids it


@pytest.mark.parametrize(("fault_s", "verdict_s", "lower"), [(120.0, 178.0, False), (170.0, 178.0, True), (20.0, 30.0, False)])
def test_a_late_verdict_s_word_stands_above_the_line_where_there_is_room(fault_s: float, verdict_s: float, lower: bool) -> None:
    root = ElementTree.fromstring(draw_panel(replace(excerpt(), fault_s=fault_s, verdict_s=verdict_s), "gpu_power_draw_watts"))
    high = {text.text: float(text.get("y") or 0.0) for text in root.iter() if text.text in ("fault", "verdict")}
    assert (high["verdict"] > high["fault"]) is lower


@pytest.mark.parametrize("line", [(None,) * 4, (0.0,) * 4, (5.0, None, 5.0, None), (-1e12, 1e12, 0.0, 1e-9)])
def test_every_line_can_be_drawn(line: tuple[float | None, ...]) -> None:
    assert "nan" not in draw_panel(excerpt(line), "gpu_power_draw_watts").lower()


def test_no_data_is_said() -> None:
    assert "and no data after" in describe_panel(excerpt((540.0, 540.0, None, None)), "gpu_power_draw_watts")


def test_a_file_has_light_and_dark_and_names_that_are_no_markup() -> None:
    text = draw_excerpt(excerpt(machine="<b>"))
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg" and "prefers-color-scheme" in text and "gpu power draw watts of <b>" in set(root.itertext())
