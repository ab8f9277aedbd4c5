"""Which exception speaks, where one was raised from another, while another was handled, or with others in a group.

A framework wraps what it caught in an exception of its own, a clean-up fails after the fault that it cleans up after, and a script ends
with `sys.exit(1)` inside its `except`. The fault is what came first; its echoes came later. Light, like failures.py.

| the outer exception | and inside | speaks |
|---|---|---|
| any | the machine's class, anywhere | that one |
| a group | several | the machine's, then the program's, then unknown, then a victim's |
| raised from another (`raise ... from`) | known by a rule | the inner |
| raised while another was handled, itself unknown, a victim or an exit | no mere branch (KeyError, StopIteration, ...) | the inner |
| an end that was asked for (Interrupted, SIGTERM, Ctrl-C) | any | the outer |
| one that carries what another process said (Ray, RPC) | any: that process reports it for itself | the outer |
"""

from __future__ import annotations

import re
import traceback

from minder.edge.signals.exceptions import ExceptionKind, Whose, classify_exception, hands_on

__all__ = ["errno_of", "said", "speaking"]

_DEEPEST = 32
_ORDER: tuple[ExceptionKind, ...] = ("machine", "program", "unknown", "victim")
_BRANCHES = (LookupError, AttributeError, ImportError, StopIteration, StopAsyncIteration, FileNotFoundError, NotImplementedError)
_BRANCH_NAMES = {"Empty", "Full", "BlockingIOError"}
_QUOTED = re.compile(r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?:: (?P<text>[^\n]*(?:\n(?!\S*Traceback)[^\n]*)*))?\s*\Z", re.MULTILINE)


def speaking(error: BaseException) -> BaseException:
    """The exception of a chain or a group that says what happened; the error itself where nothing stands behind it."""
    return _speaking(error, _DEEPEST)


def said(error: BaseException) -> tuple[str, str]:
    """(type, message), of the exception in another process of this machine where the text quotes its traceback (a data loader's, a spawned
    rank's). Never raises, also where an exception's own __str__ does."""
    name, text = type(error).__name__, _text(error)
    at = -1 if hands_on(name) else text.rfind("Traceback (most recent call last)")
    quoted = _QUOTED.search(text, at) if at >= 0 else None
    if quoted is None:
        return name, text
    return quoted["type"].rsplit(".", 1)[-1], (quoted["text"] or "").strip()


def errno_of(error: BaseException) -> int | None:
    return error.errno if isinstance(error, OSError) else None


def _speaking(error: BaseException, depth: int) -> BaseException:
    if isinstance(error, BaseExceptionGroup):
        found = [_speaking(item, depth - 1) for item in error.exceptions] if depth else []
        return min(found, key=lambda item: _ORDER.index(_whose(item).kind), default=error)
    inner = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if inner is None or depth <= 0 or hands_on(type(error).__name__):
        return error
    inner = _speaking(inner, depth - 1)
    return inner if _outweighs(inner, error) else error


def _outweighs(inner: BaseException, outer: BaseException) -> bool:
    own, other = _whose(outer), _whose(inner).kind
    if isinstance(outer, SystemExit):
        return outer.code not in (None, 0) and isinstance(inner, Exception)
    if own.rule == "asked to end" or own.kind == "machine" or not isinstance(inner, Exception):
        return False
    if other == "machine":
        return True
    if outer.__cause__ is not None:
        return other != "unknown" or own.kind == "unknown"
    is_branch = isinstance(inner, _BRANCHES) or type(inner).__name__ in _BRANCH_NAMES
    return own.kind in ("unknown", "victim") and not is_branch


def _whose(error: BaseException) -> Whose:
    name, text = said(error)
    return classify_exception(name, text, errno=errno_of(error))


def _text(error: BaseException) -> str:
    """Like str(), for exceptions of which that raises too."""
    if isinstance(error, SyntaxError):
        return str(error.msg)
    line = traceback.format_exception_only(type(error), error)[0]
    _, found, text = line.partition(": ")
    return text.rstrip("\n") if found else ""
