"""What a Prometheus holds now: its series, read through the plain HTTP API (documentation: "HTTP API", instant queries and metadata)."""

from __future__ import annotations

import itertools
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from minder.doctor.portions import Portion, quoted
from minder.ingest.sources.access import Access, refusal_of_answer, refusal_of_error, refuses_size
from minder.model.errors import SourceError

__all__ = ["Found", "Server"]

_LARGEST = 64 * 2**20
_SHORT = 2000  # of a refusal, so much is looked at
_LONGEST_ADDRESS = 4000  # longer questions are posted: proxies take 8 kB


class _TooLargeError(SourceError):
    """The answer passes what we read, or the question what the server takes; a smaller one may do."""


@dataclass(frozen=True, slots=True)
class Found:
    """One series with its newest value and when that was scraped (unix seconds)."""

    name: str
    labels: Mapping[str, str]
    value: float
    time_s: float


@dataclass(frozen=True, slots=True)
class Server:
    """url: of the Prometheus, or of what speaks its API. selector: matchers for every query, like `cluster="a"`. access: the way in."""

    url: str
    selector: str = ""
    access: Access = field(default_factory=Access)
    timeout_s: float = 20.0
    warnings: set[str] = field(default_factory=set, compare=False)  # what it said of its answers so far

    def names(self) -> list[str]:
        """Names of all metrics. Raises SourceError."""
        parameters = {"match[]": f"{{{self.selector}}}"} if self.selector else {}
        found = self._get("label/__name__/values", parameters)
        return sorted(str(name) for name in found) if isinstance(found, list) else []

    def series(self, pattern: str, within_s: float | None = None) -> list[Found]:
        """All series whose whole name matches, with their newest value of the last five minutes, or of this time. Raises SourceError."""

        def of(matchers: str) -> str:
            return matchers if within_s is None else f"last_over_time({matchers}[{within_s:.0f}s])"

        return [_found(item) for item in self._rows(of, Portion(pattern))]

    def jobs(self, pattern: str) -> set[str]:
        """Scrape jobs that have a series whose whole name matches. Raises SourceError."""
        found = self._get("query", {"query": f"count by (job) ({self._of_names(pattern)})"})
        return {str(item.get("metric", {}).get("job", "")) for item in found.get("result", [])} if isinstance(found, dict) else set()

    def giving(self, instances: Sequence[str]) -> set[str]:
        """Those of these instances that have a series of their own, of whatever name. Raises SourceError."""
        if not instances:
            return set()
        any_of = quoted("|".join(map(re.escape, instances)))
        found = self._get("query", {"query": f'count by (instance) ({{instance=~"{any_of}",__name__!~"up|scrape_.*"}})'})
        return {str(item.get("metric", {}).get("instance", "")) for item in found.get("result", [])} if isinstance(found, dict) else set()

    def _of_names(self, pattern: str) -> str:
        return Portion(pattern).matchers(self.selector)

    def types(self) -> dict[str, str]:
        """Metric to its type ("gauge", "counter"), as exporters declare it; empty where the server does not say."""
        try:
            found = self._get("metadata", {})
        except SourceError:
            return {}
        return {str(name): str(items[0].get("type", "")) for name, items in found.items() if items} if isinstance(found, dict) else {}

    def highest(self, name: str) -> list[float]:
        """Of each series of a metric its highest value of the last day. Raises SourceError."""
        rows = self._rows(lambda matchers: f"max_over_time({matchers}[1d])", Portion(re.escape(name), (name,)))
        return [float(item["value"][1]) for item in rows]

    def _rows(self, query: Callable[[str], str], portion: Portion) -> list[Any]:
        """What the query has for a portion, in as many questions as it takes."""
        try:
            found = self._get("query", {"query": query(portion.matchers(self.selector))})
        except _TooLargeError:
            smaller = self._smaller(portion)
            if not smaller:
                raise
            return [row for part in smaller for row in self._rows(query, part)]
        return list(found.get("result", [])) if isinstance(found, dict) else []

    def _smaller(self, portion: Portion) -> list[Portion]:
        if not portion.names:
            names = [name for name in self._values("__name__", portion) if re.fullmatch(portion.pattern, name)]
            portion = portion.of_names(names) if names else portion
        if parts := portion.by_names() or portion.by_values():
            return parts
        taken = {"__name__", *(label for label, _ in portion.only)}
        labels = [str(label) for label in self._get("labels", self._match(portion)) or () if label not in taken]
        values = {label: self._values(label, portion) for label in labels}
        widest = max(values, key=lambda label: len(values[label]), default=None)
        return portion.by_label(widest, values[widest]) if widest is not None else []

    def _values(self, label: str, portion: Portion) -> list[str]:
        return sorted(map(str, self._get(f"label/{label}/values", self._match(portion)) or ()))

    def _match(self, portion: Portion) -> dict[str, str]:
        return {"match[]": portion.matchers(self.selector)}

    def now_s(self) -> float:
        """The server's clock. Raises SourceError."""
        found = self._get("query", {"query": "time()"})
        try:
            return float(found["result"][1])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise SourceError(f"Prometheus at {self.url} does not report its time ({type(error).__name__})") from error

    def offset_s(self, now_s: float) -> float:
        """The server's clock minus ours (now_s), less what the time that its answer took leaves open. Raises SourceError."""
        begun_s = time.monotonic()
        server_s = self.now_s()
        open_s = (time.monotonic() - begun_s) / 2.0
        offset_s = server_s - (now_s + open_s)
        return math.copysign(max(0.0, abs(offset_s) - open_s), offset_s)

    def clock_offsets_s(self) -> list[tuple[dict[str, str], float]]:
        """Labels of a target and its clock minus the time of its scrape, from node_exporter; empty where there is none. Raises
        SourceError."""
        name = "node_time_seconds" + (f"{{{self.selector}}}" if self.selector else "")
        found = self._get("query", {"query": f"{name} - timestamp({name})"})
        rows = found.get("result", []) if isinstance(found, dict) else []
        return [
            ({str(name): str(value) for name, value in row["metric"].items()}, float(row["value"][1]))
            for row in rows
            if "metric" in row and "value" in row
        ]

    def intervals_s(self) -> dict[str, float]:
        """Scrape job to its interval, as the server's targets report it; empty where it does not say. Raises SourceError."""
        found = self._get("targets", {"state": "active"})
        targets = found.get("activeTargets", []) if isinstance(found, dict) else []
        intervals = {str(item.get("labels", {}).get("job", "")): _seconds(str(item.get("scrapeInterval", ""))) for item in targets}
        return {job: value for job, value in intervals.items() if value}

    def gap_s(self, found: Found) -> float | None:
        """The usual time between two samples of a series in the last ten minutes; None of fewer than three. Raises SourceError."""
        labels = {**found.labels, "__name__": found.name}
        matchers = ",".join(f'{label}="{quoted(value)}"' for label, value in sorted(labels.items()))
        answer = self._get("query", {"query": f"{{{matchers}}}[10m]"})
        rows = answer.get("result", []) if isinstance(answer, dict) else []
        stamps = [float(sample[0]) for row in rows[:1] for sample in row.get("values", ())]
        gaps = [after - before for before, after in itertools.pairwise(stamps)]
        return round(statistics.median(gaps), 1) if len(gaps) > 1 else None

    def _get(self, path: str, parameters: Mapping[str, str]) -> Any:
        status, content, location = self._ask(f"{self.url.rstrip('/')}/api/v1/{path}", parameters)
        try:
            body = json.loads(content)
        except ValueError:
            body = None
        if status != 200 or not isinstance(body, dict) or body.get("status") != "success":
            said = body.get("error") if isinstance(body, dict) else None
            reason = str(said) if said else content[:_SHORT].decode("utf-8", "replace")
            error = refusal_of_answer(self.url, status, reason, location, self.access.identifies)
            raise _TooLargeError(error.seen, error.mend) if refuses_size(status, reason) else error
        self.warnings.update(str(item) for item in body.get("warnings") or ())
        return body.get("data")

    def _ask(self, address: str, parameters: Mapping[str, str]) -> tuple[int, bytes, str]:
        """Status, body, and where it sends us. What is longer than we read is not fetched to its end."""
        is_long = sum(map(len, parameters.values())) > _LONGEST_ADDRESS
        context = self.access.context()
        if context is True and address.startswith("http:"):
            context = False  # the authorities of this machine take 30 ms to load, for nothing
        content = bytearray()
        try:
            with httpx.Client(trust_env=False, timeout=self.timeout_s, headers=self.access.all_headers(), verify=context) as client:
                asked = (
                    client.build_request("POST", address, data=dict(parameters))
                    if is_long
                    else client.build_request("GET", address, params=dict(parameters))
                )
                answer = client.send(asked, stream=True)
                for piece in answer.iter_bytes():
                    content += piece
                    if len(content) > _LARGEST:
                        raise _TooLargeError(f"Prometheus at {self.url} answered more than 64 MiB", "narrow it with --selector")
        except httpx.HTTPError as error:
            raise refusal_of_error(self.url, error) from error
        return answer.status_code, bytes(content), answer.headers.get("location", "")


def _found(item: Any) -> Found:
    try:
        labels = {
            sys.intern(str(name)): sys.intern(str(value)) for name, value in item["metric"].items()
        }  # of a million series a few texts
        return Found(labels.pop("__name__"), labels, float(item["value"][1]), float(item["value"][0]))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise SourceError(f"Prometheus answered a series without name, labels or value ({type(error).__name__})") from error


def _seconds(text: str) -> float | None:
    """ "1m30s" or "15s" in seconds.

    >>> _seconds("1m30s"), _seconds("500ms"), _seconds("soon")
    (90.0, 0.5, None)
    """
    parts = re.findall(r"(\d+)(ms|s|m|h)", text)
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    return sum(int(number) * units[unit] for number, unit in parts) if parts and "".join(a + b for a, b in parts) == text else None
