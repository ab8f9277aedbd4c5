"""A Prometheus in memory: pages of exporters, scraped as a configuration would, and the few queries that `minder doctor` asks.

A site is a list of targets: {job, page, labels, honor_labels}. Its answers have the shape of the HTTP API's, so that the code that
reads a real one reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from minder.doctor.series import Server
from minder.ingest.sources.exposition import parse_exposition
from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.mapping import load_mapping
from minder.ingest.sources.translate import RawSeries, Translator
from minder.model.telemetry import Sample

DATA = Path(__file__).parent / "data"
NOW_S = 1_800_000_000.0


@dataclass(frozen=True)
class Target:
    job: str
    page: str
    labels: Mapping[str, str] = field(default_factory=dict)
    honor_labels: bool = False
    up: bool = True
    age_s: float = 0.0  # of its newest sample: no stale marker ended its series
    interval: str = ""


@dataclass(frozen=True)
class Recorded(Server):
    """highest_of: name to its highest values of a day, where they are not what it says now."""

    targets: tuple[Target, ...] = ()
    highest_of: Mapping[str, list[float]] = field(default_factory=dict)
    interval: str = "15s"

    def _get(self, path: str, parameters: Mapping[str, str]) -> Any:
        if path == "label/__name__/values":
            return sorted({name for name, _, _ in self._matching(parameters.get("match[]", "{}"))})
        if path == "metadata":
            found = {}
            for target in self.targets:
                for name, kind in re.findall(r"^# TYPE (\S+) (\w+)", target.page, re.MULTILINE):
                    found[name] = [{"type": kind}]
            return found
        if path == "targets":
            return {
                "activeTargets": [{"labels": {"job": item.job}, "scrapeInterval": item.interval or self.interval} for item in self.targets]
            }
        assert path == "query"
        return {"result": self._answer(parameters["query"])}

    def _answer(self, query: str) -> Any:
        if query == "time()":
            return [NOW_S, str(NOW_S)]
        if "node_time_seconds" in query and "timestamp" in query:
            return []
        found = re.fullmatch(r"max_over_time\((\{.*\})\[1d\]\)", query)
        if found:
            rows = self._matching(found[1])
            values = next((self.highest_of[name] for name, _, _ in rows if name in self.highest_of), None)
            return [{"metric": {}, "value": [NOW_S, str(value)]} for value in (values or [value for _, _, value in rows])]
        if query.startswith("count by (job)"):
            jobs = {labels.get("job", "") for _, labels, _ in self._matching(query)}
            return [{"metric": {"job": job}, "value": [NOW_S, "1"]} for job in sorted(jobs)]
        if query.startswith("count by (instance)"):
            return [{"metric": {"instance": labels.get("instance", "")}, "value": [NOW_S, "1"]} for _, labels, _ in self._matching(query)]
        within = re.fullmatch(r"last_over_time\((\{.*\})\[(\d+)s\]\)", query, re.DOTALL)
        rows = self._matching(within[1], float(within[2])) if within else self._matching(query)
        return [{"metric": {"__name__": name, **labels}, "value": [NOW_S, str(value)]} for name, labels, value in rows]

    def _matching(self, selector: str, within_s: float = 300.0) -> list[tuple[str, dict[str, str], float]]:
        matchers = re.findall(r'(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"', selector)
        return [row for row in self.rows(within_s) if all(_fits({**row[1], "__name__": row[0]}, *matcher) for matcher in matchers)]

    def rows(self, within_s: float = 60.0) -> Iterator[tuple[str, dict[str, str], float]]:
        """Every series with a sample of that time: name, labels, value."""
        for target in (item for item in self.targets if item.age_s < within_s):
            given = {"job": target.job, **target.labels}
            yield "up", {**given, "instance": given.get("instance", "127.0.0.1:1")}, float(target.up)
            for name, own, value in _parsed(target.page) if target.up else ():
                yield name, _labelled(own, given, target.honor_labels), value

    def samples(self, machines: MachineMap, mapping: str, *earlier: Recorded) -> list[Sample]:
        """What live collection makes of it: `earlier` were scraped before this, a minute each."""
        translator, found = Translator(load_mapping(mapping), machines), list[Sample]()
        for number, site in enumerate((*earlier, self, self)):
            time_s = NOW_S + 60.0 * number
            series = [RawSeries(name, labels, ((time_s, value),)) for name, labels, value in site.rows()]
            machines.learn((item.name, item.labels, time_s) for item in series)
            found = translator.translate(series)
        return [sample for sample in found if sample.values]


@cache
def _parsed(page: str) -> list[tuple[str, dict[str, str], float]]:
    return parse_exposition(page)


def _labelled(own: dict[str, str], given: Mapping[str, str], honor: bool) -> dict[str, str]:
    """As Prometheus merges labels of a page and of its target."""
    if honor:
        merged = {**given, **own}
    else:
        merged = {**{(f"exported_{name}" if name in given or name == "instance" else name): value for name, value in own.items()}, **given}
    return {name: value for name, value in merged.items() if value}


def _fits(labels: Mapping[str, str], name: str, how: str, text: str) -> bool:
    value, text = labels.get(name, ""), text.replace('\\"', '"').replace("\\\\", "\\")
    if how in ("=", "!="):
        return (value == text) == (how == "=")
    return (re.fullmatch(text, value) is not None) == (how == "=~")


def site(folder: Path) -> Recorded:
    """folder: targets.json, and the pages that it names."""
    targets = json.loads((folder / "targets.json").read_text())
    made = [
        Target(item["job"], (folder / item["file"]).read_text(), item.get("labels", {}), item.get("honor_labels", False))
        for item in targets
    ]
    return Recorded("http://prometheus.example:9090", targets=tuple(made))
