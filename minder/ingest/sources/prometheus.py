"""Samples out of a Prometheus: raw ones, by instant queries of a range selector.

`query_range` would repeat a series' last value for up to five minutes after its exporter died: silence would look like
health. A range selector in an instant query returns what was really scraped, with its own times.

An exporter may stamp its samples itself, with a clock that is behind: they reach the Prometheus, and no look-back of two scrapes finds
them. So, while a machine of the job has no sample, one more query a minute asks how old the newest ones are; whose newest sample is old
and gets on is late, and the look-back grows for it.
"""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minder.ingest.sources.access import Access, refusal_of_answer, refusal_of_error
from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.late import LateStamps
from minder.ingest.sources.mapping import MetricMapping, load_mapping
from minder.ingest.sources.translate import RawSeries, Translator
from minder.model.errors import ConfigError, SourceError
from minder.model.telemetry import Sample

if TYPE_CHECKING:
    from prometheus_api_client import PrometheusConnect

__all__ = ["PrometheusOptions", "PrometheusSource"]

_SHORTEST_LOOKBACK_S = 30.0
_SHOWN = 3
_WHO_ASKS = (401, 403)
_log = logging.getLogger("minder.telemetry")


@dataclass(frozen=True, slots=True)
class PrometheusOptions:
    """How to ask. url: without user or password. selector: matchers added to every query, like `job="minder",cluster="a"`. access: how it
    is reached; renewed: reads it anew, since files of tokens rotate. longest_lookback_s bounds what is fetched again after an outage of the
    Prometheus, and how late a stamp may be."""

    url: str
    interval_s: float = 1.0
    selector: str = ""
    access: Access = field(default_factory=Access)
    timeout_s: float = 5.0
    longest_lookback_s: float = 300.0
    renewed: Callable[[], Access] | None = None


class PrometheusSource:
    """One query per collect for all series of the mapping, one answer or none.

    since_s: where the first call starts, for a controller that was restarted; by default the shortest look-back. follows_late: who stamps
    far behind is read as late (late.py), for a live job; a recording keeps its stamps. unplaced: target to its series whose labels gave no
    machine in the last answer; each new one is logged once, as a warning.
    """

    def __init__(
        self,
        options: PrometheusOptions,
        machines: MachineMap | None = None,
        mapping: MetricMapping | None = None,
        since_s: float | None = None,
        follows_late: bool = False,
    ) -> None:
        self._options, self._access = options, options.access
        mapping = mapping or load_mapping("minder")
        self._machines = machines = machines or MachineMap()
        names = "|".join([mapping.name_pattern(), *machines.join_series()])
        self._matchers = ",".join(part for part in (f'__name__=~"{_quoted(names)}"', options.selector) if part)
        self._late = LateStamps(options.interval_s, lambda: machines.known, options.longest_lookback_s) if follows_late else None
        self._translator = Translator(mapping, machines)
        self._connection: PrometheusConnect | None = None
        self._last_success_s = since_s
        self._question: _Question | None = None
        self._said: frozenset[str] = frozenset()
        self.unplaced: Mapping[str, int] = {}

    def query(self, now_s: float) -> str:
        """The PromQL of a call at this time: it reaches back to the last success, and always over two scrapes and a half."""
        since_s = 0.0 if self._last_success_s is None else now_s - self._last_success_s
        late_s = 0.0 if self._late is None else self._late.reach_s(now_s)
        wanted_s = max(_SHORTEST_LOOKBACK_S, 2.5 * self._options.interval_s, since_s + 2.0 * self._options.interval_s, late_s)
        longest_s = max(self._options.longest_lookback_s, _SHORTEST_LOOKBACK_S, 2.5 * self._options.interval_s)
        return f"{{{self._matchers}}}[{math.ceil(min(wanted_s, longest_s))}s]"

    def collect(self, now_s: float) -> list[Sample]:
        """The samples scraped since the last call, without series that cannot be placed on a machine. Raises SourceError on no, half or
        no sensible answer within timeout_s; what was missed comes with the next answer, back to longest_lookback_s. Raises IdentityError
        where none of them can be placed, or two targets give one metric of one machine."""
        query = self.query(now_s)
        try:
            result = self._ask(query)
        except SourceError:
            if not self._renews():
                raise
            result = self._ask(query)
        series = [_raw(item) for item in result]
        joins = self._machines.join_series()
        self._machines.learn((raw.name, raw.labels, raw.points[-1][0]) for raw in series if raw.name in joins and raw.points)
        samples = self._translator.translate(series)
        self.unplaced = self._translator.unplaced
        self._last_success_s = now_s
        self._say()
        return samples if self._late is None else self._late.move(samples, now_s)

    @property
    def late_s(self) -> Mapping[str, float]:
        """Machine to how far its stamps are behind, of those that are read as late."""
        return {} if self._late is None else self._late.late_s

    def _say(self) -> None:
        """One line when what cannot be placed has changed."""
        unplaced = frozenset(self.unplaced)
        if unplaced and unplaced != self._said:
            shown = ", ".join(sorted(unplaced)[:_SHOWN]) + (", ..." if len(unplaced) > _SHOWN else "")
            count = sum(self.unplaced.values())
            _log.warning("Prometheus at %s: %d series are left out, no label gives their machine: %s", self._options.url, count, shown)
        self._said = unplaced

    def _renews(self) -> bool:
        """Whether it was refused for who asks, and the files say something else by now."""
        if self._question is None or self._question.status not in _WHO_ASKS or self._options.renewed is None:
            return False
        try:
            access = self._options.renewed()
        except ConfigError as error:
            _log.warning("Prometheus at %s refuses, and the way in cannot be read anew: %s", self._options.url, error)
            return False
        if access == self._access:
            return False
        self.close()
        self._access = access
        return True

    def close(self) -> None:
        """Close the connections."""
        if self._connection is not None:
            self._connection._session.close()
            self._connection = None

    def _ask(self, query: str) -> list[Any]:
        """Ask in a thread of its own: a server that sends a byte now and then would outlast every socket timeout."""
        if self._question is not None and self._question.is_alive():
            raise SourceError(f"Prometheus at {self._options.url} has still not answered the last query")
        self._question = _Question(self._connect(), query, self._options.timeout_s, self._access.identifies)
        self._question.start()
        self._question.join(self._options.timeout_s + 0.5)
        if self._question.is_alive():
            raise SourceError(f"Prometheus at {self._options.url} did not answer within {self._options.timeout_s:g} s")
        if self._question.error is not None:
            raise self._question.error
        result = self._question.result
        if not isinstance(result, list):
            raise SourceError(f"Prometheus at {self._options.url} answered {type(result).__name__} where series were due")
        return result

    def _connect(self) -> PrometheusConnect:
        if self._connection is None:
            from prometheus_api_client import PrometheusConnect
            from urllib3.util.retry import Retry

            options, access = self._options, self._access
            self._connection = PrometheusConnect(
                url=options.url.rstrip("/"), headers=access.all_headers(), retry=Retry(total=0), auth=_as_it_is
            )
            if access.ca_file:
                self._connection._session.verify = access.ca_file
            if access.cert_file and access.key_file:
                self._connection._session.cert = (access.cert_file, access.key_file)
        return self._connection


def _as_it_is(request: Any) -> Any:
    """Else a ~/.netrc of this host would replace what was configured."""
    return request


class _Question(threading.Thread):
    """One query under way."""

    def __init__(self, connection: PrometheusConnect, query: str, timeout_s: float, is_known: bool) -> None:
        """is_known: the connection says who asks."""
        super().__init__(name="minder-prometheus", daemon=True)
        self.result: Any = None
        self.error: SourceError | None = None
        self.status = 0
        self._connection, self._query, self._timeout_s, self._is_known = connection, query, timeout_s, is_known

    def run(self) -> None:
        from prometheus_api_client.exceptions import PrometheusApiClientException
        from requests.exceptions import JSONDecodeError, RequestException

        url = self._connection.url
        try:
            server_limit = {"timeout": f"{round(self._timeout_s * 1000)}ms"}
            self.result = self._connection.custom_query(self._query, params=server_limit, timeout=self._timeout_s)
        except PrometheusApiClientException as error:
            self.status, text = _status_and_text(str(error))
            self.error = refusal_of_answer(url, self.status, text, known=self._is_known)
        except JSONDecodeError as error:
            self.error = refusal_of_answer(url, 200, error.doc[:2000] or "no JSON")
        except (RequestException, OSError) as error:
            self.error = refusal_of_error(url, error)
        except (ValueError, KeyError, TypeError) as error:
            self.error = SourceError(f"Prometheus at {url}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")


def _status_and_text(message: str) -> tuple[int, str]:
    """Status and text of the client's message.

    >>> _status_and_text("HTTP Status Code 401 (b'Unauthorized')")
    (401, 'Unauthorized')
    """
    found = re.search(r"HTTP Status Code (\d+) \(b?['\"](.*)['\"]\)", message, re.DOTALL)
    return (int(found[1]), found[2]) if found else (0, message)


def _raw(item: Any) -> RawSeries:
    """One series of the answer. Raises SourceError if it is none."""
    try:
        labels = {str(name): str(value) for name, value in item["metric"].items()}
        points = [(float(time_s), float(value)) for time_s, value in item["values"]]
        return RawSeries(labels.pop("__name__"), labels, points)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SourceError(f"Prometheus answered a series without name, labels or values ({type(error).__name__}: {error})") from error


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
