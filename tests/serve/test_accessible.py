"""Every page in a real browser, light and dark: contrast measured, keyboard only, landmarks and headings, what changes is said."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.ingest.sources.jobfile import RecordedJob
from minder.ingest.sources.recorder import Recorder
from minder.model.clock import FakeClock
from minder.model.decision import Decision, Price
from minder.model.telemetry import Sample
from minder.model.topology import Parallelism
from minder.record.incidents import Ledger, kinds
from minder.record.store.tokens import TokenRecord, TokenStore, new_id
from tests.serve.conftest import verdict_of, write_past

BROWSER = Path("/usr/bin/chromium")
pytestmark = [pytest.mark.server, pytest.mark.timeout(300), pytest.mark.skipif(not BROWSER.exists(), reason="needs Debian's chromium")]
MEASURE = (Path(__file__).parent / "contrast.js").read_text()
STATIC = Path(__file__).resolve().parents[2] / "serve" / "static"
PAGES = ["/", "/incidents", "/incidents/llm-1", "/incidents/llm-2", "/jobs/llm", "/machines", "/machines/m2", "/machines/n3",
         "/standbys", "/pauses", "/policy?job=llm", "/models", "/track-record", "/audit?kind=all", "/nothing"]  # fmt: skip
SCORES = {"n0": 0.0, "n1": 0.3, "n2": 0.6, "n3": 1.4, "n4": None, "n5": 0.0}
STOPS = """() => {
    const all = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
    window.stops = [...document.querySelectorAll(all)].filter((e) => e.checkVisibility({ checkVisibilityCSS: true }) && !e.disabled);
    return window.stops.filter((e) => e.type !== "radio" || e === document.querySelector(`[name=${e.name}]`)).length;
}"""  # of radio buttons with one name the keyboard stops at one
BESIDE = """() => {
    const all = document.querySelectorAll("main .badge, main button, main a, main time, main input, main td, main dd");
    const shown = [...all].filter((e) => e.checkVisibility({ checkVisibilityCSS: true }) && !e.closest("pre, [hidden]"));
    const beside = (box) => box.right > innerWidth || box.left < 0;
    return shown.filter((e) => beside(e.getBoundingClientRect())).map((e) => e.outerHTML.slice(0, 120));
}"""
NEIGHBOURS = """() => [...document.querySelectorAll("#now ul.ranks")].map(
    (list) => [...list.querySelectorAll("li")].map((item) => item.innerText.split(",")[0]))"""
SMALL = """() => {
    const touched = "button, select, input:not([type=radio], [type=hidden]), textarea, summary, nav a, .grid a, label.inline";
    const shown = [...document.querySelectorAll(touched)].filter((e) => e.checkVisibility({ checkVisibilityCSS: true }));
    return shown.filter((e) => e.getBoundingClientRect().height < 40).map((e) => e.outerHTML.slice(0, 120));
}"""
UNLABELLED = """[...document.querySelectorAll("input:not([type=hidden]), select, textarea")]
    .filter((e) => !e.labels.length && !e.ariaLabel && !e.getAttribute("aria-labelledby")).map((e) => e.name)"""
PICTURES = os.environ.get("MINDER_PAGE_PICTURES")  # a folder: keep a screenshot of everything


def write_ledger(path: Path, now_s: float) -> None:
    """Everything that a page may show: an incident that is over, one with a question, a pause, a bar, trouble, a retest."""
    with Ledger(path, clock=FakeClock(now_s)) as ledger:
        write_past(ledger, begin_s=now_s - 1000.0)
        ranks = {str(rank): machine for rank, machine in enumerate(machine for machine in SCORES for _ in range(2))}
        ledger.append(kinds.GENERATION_STARTED, {"generation": 3, "rank_machine": ranks}, job="llm")
        ledger.append(kinds.FIRST_STEP, {"step": 50, "generation": 3}, job="llm")
        verdict = verdict_of("n3", now_s - 50.0)
        name = ledger.open_incident(verdict, job="llm", time_s=now_s - 50.0)
        panel = {"low": [530.0] * 3, "middle": [540.0] * 3, "high": [550.0] * 3, "line": [541.0, 541.0, 130.0]}
        times = {"fault_s": now_s - 58.0, "verdict_s": now_s - 50.0, "peers": 5, "times": [now_s - 70.0, now_s - 60.0, now_s - 50.0]}
        excerpt = {"machine": "n3", "what": "telemetry", "data": {**times, "metrics": {"gpu_power_draw_watts": panel}}}
        ledger.append(kinds.EVIDENCE, excerpt, job="llm", incident=name)
        decision = Decision("evict-n3", now_s - 49.0, "evict", ("n3",), "act", "", verdict, Price(1.0, 9.0), ("s1",))
        asked = {"decision": decision, "until_s": now_s + 6000.0, "on_timeout": "page", "generation": 3, "incidents": [name]}
        ledger.append_once(kinds.APPROVAL_ASKED, asked, job="llm", incident=name, operation_id="evict-n3")
        ledger.append(kinds.PAUSE, {"scope": "rack", "target": "r1", "until_s": now_s + 600, "reason": "firmware", "by": "ann"})
        window = {"id": "window-1", "from_s": now_s - 60, "until_s": now_s + 600, "machines": ["n1"], "racks": [], "jobs": [], "by": "ann"}
        ledger.append(kinds.MAINTENANCE, {**window, "reason": "fans"})
        ledger.append(kinds.DEGRADED, {"what": "telemetry is late", "detail": "3 s"}, job="llm")
        ledger.append(kinds.OUTCOME, {"machine": "m2", "outcome": "confirmed", "note": "HBM", "by": "ann"}, incident="llm-1")


def write_status(folder: Path, now_s: float) -> None:
    """What its controller would have written, with every colour of the grid."""
    rows: list[dict[str, Any]] = [
        {"name": name, "role": "training", "agent_age_s": 0.4, "launcher_age_s": 0.4, "workers": ["running"], "step": 50, "score": score}
        for name, score in SCORES.items()
    ]
    rows[5]["agent_age_s"] = rows[5]["launcher_age_s"] = None
    status = {"job": "llm", "now_s": now_s, "generation": 3, "phase": "running", "machines": rows, "step": 50, "dry_run": True,
              "message": "", "errors": {"telemetry": 3}, "undecided": 0}  # fmt: skip
    times = [now_s - 600 + 5 * row for row in range(120)]
    panel = {"low": [500.0] * 120, "middle": [540.0] * 120, "high": [560.0] * 120, "lines": {"n3": [130.0] * 120, "n2": [520.0] * 120}}
    live = {"now_s": now_s, "machines": 6, "standouts": ["n3", "n2"], "times": times, "metrics": {"gpu_power_draw_watts": panel}}
    workers = [
        {"dp_rank": place % 3, "stage": place // 3, "rank": 2 * place, "machine": name,
         "forward_s": 0.2 * (1.0, 1.15, 1.3, 1.6, 1.0, 1.0)[place], "backward_s": 0.4, "slowdown": 1.0,
         "against_peers": 1.6 if place == 3 else 1.0}
        for place, name in enumerate(SCORES)
    ]  # fmt: skip
    steps = {"job": "llm", "generation": 3, "time_s": now_s, "cause": "worker", "why": "dp rank 0 of stage 1 computes long", "steps": 8,
             "slowdown": 1.4, "trusted": True, "blamed": ["n3"], "workers": workers}  # fmt: skip
    for name, content in (("status.json", status), ("live.json", live), ("whatif.json", steps)):  # whole, as a controller does
        (folder / f"{name}.tmp").write_text(json.dumps(content))
        (folder / f"{name}.tmp").replace(folder / name)


def record(folder: Path, now_s: float) -> None:
    """Ten minutes of all machines; n3 falls behind its peers."""
    with Recorder(folder, RecordedJob("llm", tuple(SCORES), (), 1, Parallelism(data=len(SCORES)), 5.0, {})) as recorder:
        for row in range(120):
            time_s = now_s - 600.0 + 5.0 * row
            power = {name: 540.0 + 6.0 * math.sin(row + index) for index, name in enumerate(SCORES)} | ({"n3": 130.0} if row > 100 else {})
            values = {name: {"gpu_power_draw_watts": watts, "cpu_usage_ratio": 0.5 + watts / 2000} for name, watts in power.items()}
            recorder.append_samples([Sample(time_s, name, found) for name, found in values.items()])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """A real service with all of that: its address, an operator's token, the ledger."""
    folder, now_s = tmp_path_factory.mktemp("site"), time.time()
    write_ledger(folder / "ledger.db", now_s)
    write_status(folder, now_s)
    machines = "".join(f'[[machines]]\nname = "{name}"\nrack = "r{index // 3}"\n' for index, name in enumerate(SCORES))
    record(folder / "recording", now_s)
    layout = "ranks_per_machine = 2\n[parallelism]\ntensor = 2\npipeline = 2\ndata = 3\n"
    (folder / "job.toml").write_text(f'name = "llm"\nstate_dir = "{folder}"\nrecord_dir = "{folder}/recording"\n{layout}{machines}')
    store = TokenStore(folder / "ledger.db")
    token = store.create(TokenRecord(new_id(), "ann", "operator", now_s, "root"))
    store.close()
    words = ["serve", "--listen", "127.0.0.1:0", "--ledger", str(folder / "ledger.db"), "--config", str(folder / "job.toml")]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", "minder", *words], stderr=log)
    while not (found := re.findall(r"http://127\.0\.0\.1:\d+", (folder / "log").read_text())):
        assert process.poll() is None, (folder / "log").read_text()
        time.sleep(0.1)
    over = threading.Event()

    def write() -> None:
        while not over.wait(2.0):
            write_status(folder, time.time())

    writing = threading.Thread(target=write)
    writing.start()
    yield found[0], token, folder / "ledger.db"
    over.set()
    writing.join()
    process.terminate()
    assert process.wait(60) == 0


def enter(tab: Any, site: tuple[str, str, Path]) -> None:
    tab.goto(f"{site[0]}/sign-in")
    tab.fill("#token", site[1])
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"{site[0]}/")


def show(tab: Any, site: tuple[str, str, Path], page: str) -> None:
    tab.goto(site[0] + page)
    if page.startswith("/jobs"):
        tab.wait_for_selector(".panel canvas")
    if page == "/models" or page.startswith("/machines/"):  # its last part comes by itself
        tab.wait_for_load_state("networkidle")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_graphics_stand_out_from_their_paper(tab: Any, site: tuple[str, str, Path], scheme: str) -> None:
    """At least 4.5 for text of any size, 3 for the edges and lines that tell something (WCAG 2.2, 1.4.3 and 1.4.11)."""
    tab.emulate_media(color_scheme=scheme)
    found = {}
    tab.goto(f"{site[0]}/sign-in")
    for page in ["/sign-in", *PAGES]:
        if page == PAGES[0]:
            enter(tab, site)
        for width in (1440, 390):
            tab.set_viewport_size({"width": width, "height": 900})
            show(tab, site, page)
            found[page, width] = tab.evaluate(MEASURE)
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{page} is wider than {width}"
            if PICTURES:
                name = re.sub(r"\W+", "-", page).strip("-") or "fleet"
                tab.screenshot(path=f"{PICTURES}/{name}-{scheme}-{width}.png", full_page=True)
    assert all(found.values())
    least = {
        kind: min((item["ratio"], item["what"]) for items in found.values() for item in items if item["kind"] == kind)
        for kind in ("text", "graphic")
    }
    print(scheme, sum(map(len, found.values())), "pairs of colours; least", least)
    low = {
        f"{item['what']} {item['colour']} on {item['paper']}: {item['ratio']:.2f}"
        for items in found.values()
        for item in items
        if item["ratio"] < (4.5 if item["kind"] == "text" else 3.0)
    }
    assert low == set(), "\n".join(sorted(low))
    assert tab.troubles == []


def test_a_phone_shows_and_reaches_all_that_a_night_needs(tab: Any, site: tuple[str, str, Path]) -> None:
    """Nothing lies beside the screen, in a box that scrolls either, but program text; what is touched is 40 px high."""
    enter(tab, site)
    tab.set_viewport_size({"width": 390, "height": 844})
    for page in PAGES:
        show(tab, site, page)
        assert tab.evaluate(BESIDE) == [], page
        assert tab.evaluate(SMALL) == [], page
    show(tab, site, "/")
    assert tab.locator("td[data-label=Controller] .badge.bad").is_visible(), "the red badge of the fleet"
    show(tab, site, "/incidents/llm-2")
    assert all(tab.locator(f"button[value={answer}]").bounding_box()["x"] >= 0 for answer in ("approved", "rejected"))
    assert tab.locator("button[value=approved]").bounding_box()["y"] < 844 + 300, "the question comes first"
    show(tab, site, "/incidents/llm-1")
    assert tab.locator("text=Undo").first.is_visible()


def test_pages_can_be_read_by_their_structure(tab: Any, site: tuple[str, str, Path]) -> None:
    enter(tab, site)
    for page in PAGES:
        show(tab, site, page)
        assert tab.title() and tab.get_attribute("html", "lang") == "en"
        assert [tab.locator(part).count() for part in ("main", "body > header", "body > footer", "h1")] == [1] * 4, page
        assert tab.locator("nav:not([aria-label])").count() == 0, page
        levels = [int(tag[1]) for tag in tab.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(e => e.tagName)")]
        assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels)), (page, levels)
        assert tab.evaluate(UNLABELLED) == [], page
        assert tab.locator("th:not([scope]):not([aria-hidden] *)").count() == 0, page
        assert tab.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id).filter((id, at, all) => all.indexOf(id) !== at)") == []


def test_pages_work_with_the_keyboard_alone(tab: Any, site: tuple[str, str, Path]) -> None:
    """The first stop is the way past the navigation; every stop is seen, in the order of the page; nothing is a trap."""
    enter(tab, site)
    look = """() => { const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
        return [window.stops.indexOf(e), s.outlineStyle, parseFloat(s.outlineWidth), r.right > 0 && r.bottom > 0, e.textContent.trim()] }"""
    for page in PAGES:
        show(tab, site, page)
        visited = []
        for stop in range(min(tab.evaluate(STOPS), 40)):
            tab.keyboard.press("Tab")
            at, style, width, is_seen, text = tab.evaluate(look)
            assert at >= 0 and style != "none" and width >= 2 and is_seen, (page, stop, text, style, width)
            visited.append(at)
            assert stop > 0 or text == "Skip to the content"
        assert visited == sorted(visited) and len(set(visited)) == len(visited), page
    show(tab, site, "/")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "main"


def test_what_changes_is_said_and_takes_nobody_s_place(tab: Any, site: tuple[str, str, Path]) -> None:
    """A new incident is put into a polite live region, once; the link that has the focus keeps it."""
    enter(tab, site)
    tab.focus("#fleet a[href='/jobs/llm']")
    assert tab.text_content("#news") == "" and tab.get_attribute("#news", "role") == "status"
    with Ledger(site[2]) as ledger:
        ledger.open_incident(verdict_of("n1", time.time()), job="llm")
    tab.wait_for_selector("#news:has-text('2 incidents are open')", state="attached")
    assert tab.evaluate("document.activeElement.getAttribute('href')") == "/jobs/llm"


def test_a_click_on_the_heat_map_shows_the_neighbours_of_that_rank(tab: Any, site: tuple[str, str, Path]) -> None:
    """In each parallel dimension, where the eye is; a neighbour leads on to its own, and what is polled keeps the choice."""
    enter(tab, site)
    show(tab, site, "/jobs/llm")
    assert tab.locator("#rank-title").count() == 0
    tab.get_by_role("link", name="rank 6 on n3: forward").click()
    tab.wait_for_selector("#rank-title:has-text('Rank 6 on n3')")
    assert tab.locator("#now h4").all_inner_texts() == [
        "Along the tensor rank 2",
        "Along the pipeline stage 2",
        "Along the data-parallel rank 3",
    ]
    assert tab.evaluate(NEIGHBOURS) == [
        ["rank 6 on n3 forward 1.49", "rank 7 on n3 forward 1.49"],
        ["rank 0 on n0 forward 0.93", "rank 6 on n3 forward 1.49"],
        ["rank 6 on n3 forward 1.49", "rank 8 on n4 forward 0.93", "rank 10 on n5 forward 0.93"],
    ]
    assert 0 <= tab.locator("#rank-title").bounding_box()["y"] < tab.viewport_size["height"]
    tab.locator("ul.ranks").get_by_role("link", name="rank 10", exact=True).click()
    tab.wait_for_selector("#rank-title:has-text('Rank 10 on n5')")
    tab.evaluate("document.querySelector('#rank-title').dataset.old = 'yes'")
    tab.wait_for_selector("#rank-title:not([data-old])")  # polled since
    assert tab.inner_text("#rank-title") == "Rank 10 on n5"
    marked = [cell.get_attribute("aria-label") for cell in tab.locator("table.heat a[aria-current=true]").all()]
    assert [text.partition(" s,")[0] for text in marked] == ["rank 10 on n5: forward 0.2", "rank 10 on n5: backward 0.4"]
    assert tab.troubles == []


def test_lines_of_the_live_panels_stand_out_too() -> None:
    """They are drawn on a canvas, so their colours are read where they are written."""
    css, script = (STATIC / "minder.css").read_text(), (STATIC / "live.js").read_text()
    papers = re.findall(r"--paper: (#\w{6})", css)
    pairs = re.findall(r'(\w+): dark \? (\[[^]]*\]|"[^"]*") : (\[[^]]*\]|"[^"]*")', script)
    assert {name for name, _, _ in pairs} == {"ink", "grid", "band", "edge", "middle", "lines"}
    for name, dark, light in pairs:
        least = {"grid": 1.0, "band": 1.0, "ink": 4.5}.get(name, 3.0)
        for paper, told in ((papers[1], dark), (papers[0], light)):
            for colour in re.findall(r"#\w{6}", told):
                assert ratio(colour, paper) >= least, (name, colour, paper)


def ratio(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
