"""Structured logging with the standard library: one line per event, as key=value or as JSON, on standard error only (docs/logging.md).

_log = logging.getLogger("minder.controller")
event(_log, logging.INFO, "decision", job="llm", action="evict", machines=("m1",))
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from minder.model.errors import BadInputError

__all__ = ["FORMATS", "LEVELS", "crashed", "event", "remove_logging", "say", "set_up_logging", "words_of"]

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
_log = logging.getLogger("minder")
_FIELDS = "minder_fields"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/,+@%")


def event(log: logging.Logger, level: int, name: str, *, error: BaseException | None = None, **fields: Any) -> None:
    """One line, if that level is logged at all. name: what happened, two or three words that never vary. error: its traceback goes too."""
    if log.isEnabledFor(level):
        log.log(level, "%s", name, exc_info=error, extra={_FIELDS: fields}, stacklevel=2)


def say(line: str) -> None:
    """A line for a person, on standard error: one line whatever it quotes, and a record like any other where the log is JSON."""
    text = _visible(" ".join(line.split()))
    handler = next((found for found in logging.getLogger().handlers if isinstance(found, _StandardError)), None)
    if handler is not None and isinstance(handler.formatter, _Json):  # whatever the level: it is for a person
        fields = {"detail": text.removeprefix("minder: ")}
        handler.emit(
            logging.makeLogRecord({"name": "minder", "levelno": logging.INFO, "levelname": "INFO", "msg": "said", _FIELDS: fields})
        )
    else:
        _write(text)


def _write(text: str) -> None:
    """What cannot be written is lost, and who wrote it goes on: a disk that is full ends no controller and no launcher."""
    with suppress(OSError, ValueError):  # a full disk, or closed
        print(text, file=sys.stderr, flush=True)


def set_up_logging(default: str | None = None) -> None:
    """As MINDER_LOG_LEVEL and MINDER_LOG_FORMAT say (the command line's options set them too). default: the level where neither is set;
    None: then nothing is set up, and warnings stay bare lines for a person. Raises BadInputError for a word that is not known."""
    level, style = _read("MINDER_LOG_LEVEL", LEVELS), _read("MINDER_LOG_FORMAT", FORMATS)
    remove_logging()
    if level is None and style is None and default is None:
        return
    handler = _StandardError()
    handler.setFormatter(_Json() if style == "json" else _KeyValue())
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(True)
    threading.excepthook, sys.unraisablehook = _thread_ended, _lost
    logging.getLogger("minder").setLevel((level or default or "warning").upper())


def remove_logging() -> None:
    """As before `set_up_logging`."""
    root = logging.getLogger()
    for handler in [item for item in root.handlers if isinstance(item, _StandardError)]:
        root.removeHandler(handler)
        logging.captureWarnings(False)
        threading.excepthook, sys.unraisablehook = handler.hooks
        logging.getLogger("minder").setLevel(logging.NOTSET)


def words_of(line: str) -> str:
    """What a line of such a log says, without what every line has: of its last line a process's end is known."""
    with suppress(ValueError):
        record = json.loads(line)
        return str(record.get("detail") or record.get("event") or line) if isinstance(record, dict) else line
    return line.removeprefix("minder: ")


def crashed(error: BaseException) -> bool:
    """Log that this process ends by an exception that nothing caught, as one record. False where no log is kept."""
    is_kept = any(isinstance(handler, _StandardError) for handler in logging.getLogger().handlers)
    if is_kept:
        event(_log, logging.CRITICAL, "ended by an error", error=error)
    return is_kept


def _thread_ended(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value is not None and ended.exc_type is not SystemExit:
        name = None if ended.thread is None else ended.thread.name
        event(_log, logging.CRITICAL, "thread ended by an error", error=ended.exc_value, thread=name)


def _lost(raised: Any) -> None:
    """An exception that had no way out, as of an object that goes; the process lives on."""
    event(_log, logging.ERROR, "error had no way out", error=raised.exc_value, where=raised.err_msg or type(raised.object).__name__)


def _read(variable: str, words: Iterable[str]) -> str | None:
    text = os.environ.get(variable)
    if not text:
        return None
    if text.lower() not in words:
        option = variable.removeprefix("MINDER").replace("_", "-").lower()
        raise BadInputError(f'-{option} (or {variable}) is "{text}": use {", ".join(words)}')
    return text.lower()


class _StandardError(logging.Handler):
    """Whatever standard error is at that moment. A line that cannot be written is lost: logging never stops what it reports on."""

    def __init__(self) -> None:
        super().__init__()
        self.hooks = threading.excepthook, sys.unraisablehook  # of before

    def emit(self, record: logging.LogRecord) -> None:
        _write(self.format(record))


class _KeyValue(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = " ".join(f"{key}={_quoted(value)}" for key, value in _fields(record))
        trace = _trace(record)
        return "\n".join([line, *(f"    {_visible(part)}" for part in trace.splitlines())])


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        found = dict(_fields(record))
        if trace := _trace(record):
            found["traceback"] = trace
        return _dump(found)


def _fields(record: logging.LogRecord) -> Iterable[tuple[str, Any]]:
    whole_s, rest_ms = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)), int(record.msecs)
    yield "time", f"{whole_s}.{rest_ms:03d}Z"
    yield "level", record.levelname.lower()
    yield "logger", record.name
    yield "event", record.getMessage()
    own = getattr(record, _FIELDS, None) or {}
    yield from ((key, value) for key, value in own.items() if value is not None and key != "traceback")
    if record.exc_info and record.exc_info[1] is not None and "detail" not in own:
        yield "detail", f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}"


def _trace(record: logging.LogRecord) -> str:
    trace = (getattr(record, _FIELDS, None) or {}).get("traceback")
    if not trace and record.exc_info:
        trace = logging.Formatter().formatException(record.exc_info)
    return str(trace or "").rstrip("\n")


def _quoted(value: Any) -> str:
    """As logfmt writes it: bare where no character of it could be misread, else in double quotes, one line."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (set, frozenset)):
        value = _as_list(value)
    text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text if text and _PLAIN.issuperset(text) else _dump(text)


def _dump(value: Any) -> str:
    """JSON without anything that a terminal would obey or take for the end of a line."""
    text = json.dumps(value, default=_as_list, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value, default=_as_list)


def _visible(line: str) -> str:
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in line)


def _as_list(value: Any) -> Any:
    return sorted(value, key=str) if isinstance(value, (set, frozenset)) else list(value) if isinstance(value, tuple) else str(value)
