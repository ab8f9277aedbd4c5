"""The process that reads uploads: no ledger, no tokens, a limit on memory. It may die of what it reads; the service starts another.

One line of JSON per upload on standard input: {what, folder, name, until_s, newest_s, bounds}. The answer is result.json in that
folder, and a line.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minder.model.errors import MinderError
from minder.model.log import event, set_up_logging

__all__ = ["DUMPS", "main", "read_dumps", "score"]

_log = logging.getLogger("minder.serve")
_MOST_NOTES = 20
DUMPS = "dumps"  # the sub-folder of an upload that holds them, so that no name of theirs is one of ours


class _Notes(logging.Handler):
    """What minder warns of while it reads, for the sender."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.lines) < _MOST_NOTES:
            self.lines.append(record.getMessage())


def score(folder: Path, name: str, until_s: float | None, bounds: dict[str, Any]) -> dict[str, Any]:
    """Fields of ScoreResult, as `minder replay` would conclude from this folder. Raises MinderError with one line."""
    from minder.ingest.sources.recording import read_recording
    from minder.offline.evaluation.judged import not_judged
    from minder.offline.evaluation.lines import verdict_line
    from minder.offline.evaluation.replay import replay_recording
    from serve.scoring.unpack import Bounds, check_size, unpack

    limits = Bounds(**bounds)
    with _noting(folder) as notes:
        unpack(folder, name, limits)
        recording = read_recording(folder)
        check_size(recording, limits)
        seen = recording if until_s is None else recording.until(until_s)
        verdicts = [verdict_line(name, verdict) for verdict in replay_recording(seen, until_s)]
    counts = {"rows": len(seen.frames.times_N), "machines": len(seen.machines), "verdicts": verdicts, "notes": notes}
    return {"recording": name, **counts, "not_judged": not_judged(seen)}


def append(folder: Path, newest_s: float | None, bounds: dict[str, Any]) -> dict[str, Any]:
    """What serve.scoring.rows says of the rows in `folder`; a line that does not hold is `refused`, what came before it is taken."""
    from serve.scoring.rows import read_rows
    from serve.scoring.unpack import Bounds

    return read_rows(folder, Bounds(**bounds), newest_s)


def read_dumps(what: str, folder: Path) -> dict[str, Any]:
    """Fields of StacksResult ("stacks") or CollectivesResult ("collectives") of the dumps in `folder`. Raises MinderError in one line."""
    from minder.diagnose.stacks import to_document
    from minder.offline.evaluation.collectives import collectives_document
    from minder.offline.evaluation.stacks import find_in_stacks

    with _noting(folder) as notes:
        document = to_document(find_in_stacks(folder)) if what == "stacks" else collectives_document(folder)
    found = json.dumps(document | {"notes": notes}, ensure_ascii=False, allow_nan=False)
    return dict(json.loads(found.encode("utf-8", "replace")))  # processes.json may hold halves of letters, which no answer can


@contextlib.contextmanager
def _noting(folder: Path) -> Iterator[list[str]]:
    """A list that has, afterwards, what minder warned of meanwhile."""
    handler, notes = _Notes(), list[str]()
    logging.getLogger("minder").addHandler(handler)
    try:
        yield notes
    finally:
        logging.getLogger("minder").removeHandler(handler)
        notes += [_plain(line, folder) for line in handler.lines]


def _plain(text: str, folder: Path) -> str:
    """One line that does not say where the service keeps its files."""
    line = " ".join(text.replace(f"{folder}/", "").replace(str(folder), "the upload").split())
    return line.encode("ascii", "backslashreplace").decode()[:500]


def _answer(order: dict[str, Any]) -> dict[str, Any]:
    folder = Path(order["folder"])
    try:
        if order["what"] == "rows":
            return {"result": append(folder, order["newest_s"], order["bounds"])}
        if order["what"] == "scores":
            return {"result": score(folder, order["name"], order["until_s"], order["bounds"])}
        return {"result": read_dumps(order["what"], folder / DUMPS)}
    except MinderError as error:
        return {"refused": _plain(str(error), folder)}
    except MemoryError:
        return {"refused": "this needs more memory than an upload may take: send a shorter time, or fewer machines"}
    except Exception as error:  # noqa: BLE001
        event(_log, logging.ERROR, "upload not read", error=error, what=order["what"])
        return {"refused": f"the upload cannot be read: it is something else than what is read here ({type(error).__name__})"}


def _set_limits(most_bytes: int) -> None:
    """On top of what the process holds once everything is loaded."""
    status = Path("/proc/self/status").read_text() if Path("/proc/self/status").exists() else ""
    held_kib = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmData:")), 0)
    resource.setrlimit(resource.RLIMIT_DATA, (held_kib * 1024 + most_bytes,) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)


def main() -> None:
    """Serve orders until standard input ends. Argument: the limit on memory in bytes."""
    set_up_logging("error")
    evaluation = (f"minder.offline.evaluation.{name}" for name in ("replay", "stacks", "collectives"))
    for module in (*evaluation, "minder.ingest.sources.recording", "serve.scoring.rows", "serve.scoring.unpack"):
        importlib.import_module(module)  # what these hold does not count against the limit
    _set_limits(int(sys.argv[1]))
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        answer = _answer(order)
        (Path(order["folder"]) / "result.json").write_text(json.dumps(answer, allow_nan=False))
        print("done", flush=True)


if __name__ == "__main__":
    main()
