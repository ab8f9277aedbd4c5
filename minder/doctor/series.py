"""What a Prometheus holds now: its series, read through the plain HTTP API (documentation: "HTTP API", instant queries and metadata)."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from minder.ingest.sources.access import Access, refusal_of_answer, refusal_of_error
from minder.model.errors import SourceError

__all__ = ["Found", "Server"]

_LARGEST = 64 * 2**20
_SHORT = 2000  # of a refusal, so much is looked at


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
        query = self._of_names(pattern)
        found = self._get("query", {"query": query if within_s is None else f"last_over_time({query}[{within_s:.0f}s])"})
        return [_found(item) for item in found.get("result", [])] if isinstance(found, dict) else []

    def jobs(self, pattern: str) -> set[str]:
        """Scrape jobs that have a series whose whole name matches. Raises SourceError."""
        found = self._get("query", {"query": f"count by (job) ({self._of_names(pattern)})"})
        return {str(item.get("metric", {}).get("job", "")) for item in found.get("result", [])} if isinstance(found, dict) else set()

    def giving(self, instances: Sequence[str]) -> set[str]:
        """Those of these instances that have a series of their own, of whatever name. Raises SourceError."""
        if not instances:
            return set()
        quoted = _quoted("|".join(map(re.escape, instances)))
        found = self._get("query", {"query": f'count by (instance) ({{instance=~"{quoted}",__name__!~"up|scrape_.*"}})'})
        return {str(item.get("metric", {}).get("instance", "")) for item in found.get("result", [])} if isinstance(found, dict) else set()

    def _of_names(self, pattern: str) -> str:
        matchers = ",".join(part for part in (f'__name__=~"{_quoted(pattern)}"', self.selector) if part)
        return f"{{{matchers}}}"

    def types(self) -> dict[str, str]:
        """Metric to its type ("gauge", "counter"), as exporters declare it; empty where the server does not say."""
        try:
            found = self._get("metadata", {})
        except SourceError:
            return {}
        return {str(name): str(items[0].get("type", "")) for name, items in found.items() if items} if isinstance(found, dict) else {}

    def highest(self, name: str) -> list[float]:
        """Of each series of a metric its highest value of the last day. Raises SourceError."""
        found = self._get("query", {"query": f"max_over_time({self._of_names(re.escape(name))}[1d])"})
        return [float(item["value"][1]) for item in found.get("result", [])] if isinstance(found, dict) else []

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

    def _get(self, path: str, parameters: Mapping[str, str]) -> Any:
        address = f"{self.url.rstrip('/')}/api/v1/{path}"
        context = self.access.context()
        try:
            with httpx.Client(trust_env=False, timeout=self.timeout_s, headers=self.access.all_headers(), verify=context) as client:
                answer = client.get(address, params=dict(parameters))
        except httpx.HTTPError as error:
            raise refusal_of_error(self.url, error) from error
        if len(answer.content) > _LARGEST:
            raise SourceError(f"Prometheus at {self.url} answered more than 64 MiB", "narrow it with --selector")
        try:
            body = answer.json()
        except ValueError:
            body = None
        if answer.status_code != 200 or not isinstance(body, dict) or body.get("status") != "success":
            said = body.get("error") if isinstance(body, dict) else None
            reason = str(said) if said else answer.text[:_SHORT]
            raise refusal_of_answer(self.url, answer.status_code, reason, answer.headers.get("location", ""), self.access.identifies)
        self.warnings.update(str(item) for item in body.get("warnings") or ())
        return body.get("data")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _found(item: Any) -> Found:
    try:
        labels = {str(name): str(value) for name, value in item["metric"].items()}
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
