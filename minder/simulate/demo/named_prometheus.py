"""A Prometheus that another owner runs scrapes the lab: it finds the agents in a file (file_sd), and is waited for."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from minder.model.errors import BadInputError
from minder.model.private import make_private, write_private

__all__ = ["NamedPrometheus"]

_PATIENCE_S = 20.0


class NamedPrometheus:
    """`targets` maps machine name to "address:port". In `folder`, which is the same for every run: targets.json, and `token`, which
    only its owner can read. A context manager; after it there are no targets."""

    def __init__(self, url: str, folder: Path, targets: Mapping[str, str], token: str, interval_s: float) -> None:
        self.url = url.rstrip("/")
        self._folder = folder
        self._targets = targets
        self._token = token
        self._patience_s = _PATIENCE_S + 2.0 * interval_s

    def __enter__(self) -> NamedPrometheus:
        """Raises BadInputError if it does not answer, or does not scrape the lab."""
        self._scraped()
        make_private(self._folder)
        self._write("token", self._token)
        self._write("targets.json", json.dumps([{"targets": [at], "labels": {"machine": name}} for name, at in self._targets.items()]))
        end_s = time.monotonic() + self._patience_s
        while (seen := self._scraped()) < len(self._targets):
            if time.monotonic() > end_s:
                self.__exit__()
                raise BadInputError(
                    f"--prometheus {self.url} scrapes {seen} of the lab's {len(self._targets)} agents: give it a job with "
                    f"file_sd_configs {self._folder / 'targets.json'}, refresh_interval 2s, and authorization.credentials_file "
                    f"{self._folder / 'token'}"
                )
            time.sleep(0.2)
        return self

    def __exit__(self, *unused: object) -> None:
        self._write("targets.json", "[]")

    def _scraped(self) -> int:
        """How many of the lab's agents it has scraped with success."""
        names = "|".join(self._targets)
        query = urllib.parse.urlencode({"query": f'count(up{{machine=~"{names}"}} == 1)'})
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=5.0) as answer:
                result = json.load(answer)["data"]["result"]
            return int(result[0]["value"][1]) if result else 0
        except (OSError, ValueError, LookupError, TypeError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise BadInputError(f"--prometheus {self.url} does not answer as a Prometheus: {reason}") from error

    def _write(self, name: str, text: str) -> None:
        """As a whole: Prometheus may read at any moment."""
        draft = self._folder / f".{name}"
        write_private(draft, text)
        draft.replace(self._folder / name)
