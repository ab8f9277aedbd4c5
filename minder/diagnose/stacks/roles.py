"""What one stack says: what its process is doing, and what that is part of.

What a frame means stands in tables (tools.toml, then roles.toml), compiled once, asked once for every frame that exists.
"""

from __future__ import annotations

import fnmatch
import functools
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from minder.diagnose.stacks.records import Frame, Kind
from minder.model.errors import ConfigError

__all__ = [
    "FrameMeaning",
    "Role",
    "Rule",
    "doing_of",
    "is_parked",
    "is_socket",
    "is_training",
    "read_frame",
    "read_stack",
    "telling",
    "trains",
]

Stance = Literal["waits", "may wait", "outside"]
Blame = Literal["machine", "software", "workload", "unknown"]
_TABLES = ("tools.toml", "roles.toml")  # of two rules that fit, the one that is read first counts
_LAYERS = ("doing", "over", "lock", "owner", "within", "duty", "aside", "apart", "rest", "hint")
_PLAIN = ("plumbing", "neutral")  # layers without a rule: patterns only
_KEYS = frozenset(
    {
        "kind",
        "stance",
        "reason",
        "blame",
        "weight",
        "patterns",
        "native",
        "start",
        "weak",
        "io",
        "backward",
        "imports",
        "bare",
        "spins",
        "service",
        "owns",
    }
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of tools.toml or roles.toml; their heads explain the fields."""

    reason: str
    kind: Kind = "other"
    stance: Stance = "outside"
    blame: Blame = "unknown"
    weight: float = 0.5
    start: bool = False
    weak: bool = False
    io: bool = False
    backward: bool = False
    imports: bool = False
    bare: bool = False
    spins: bool = False
    service: bool = False
    owns: Literal["", "files", "all"] = ""


@dataclass(frozen=True, slots=True)
class FrameMeaning:
    """What one frame says, layer by layer; plumbing says nothing at all."""

    doing: Rule | None = None
    over: Rule | None = None
    lock: Rule | None = None
    owner: Rule | None = None
    within: Rule | None = None
    duty: Rule | None = None
    aside: bool = False
    apart: Rule | None = None
    rest: bool = False
    hint: Rule | None = None
    plumbing: bool = False
    neutral: bool = False


@dataclass(frozen=True, slots=True)
class _Table:
    layers: Mapping[str, tuple[tuple[Rule, _Matcher], ...]]
    plumbing: _Matcher
    neutral: _Matcher


class _Matcher:
    """Patterns of one rule as one regular expression over "function\\nfile"."""

    def __init__(self, python: Iterable[str], native: Iterable[str]) -> None:
        self._python, self._native = _compile(python), _compile(native)

    def fits(self, frame: Frame) -> bool:
        expression = self._native if frame.native else self._python
        return expression is not None and expression.match(f"{frame.function}\n{frame.file}") is not None


def _compile(patterns: Iterable[str]) -> re.Pattern[str] | None:
    parts = []
    for pattern in patterns:
        function, _, file = (part.strip() for part in pattern.partition(" @ "))
        inside = f".*{re.escape(file).replace(chr(92) + '*', '.*')}" if file else ""
        parts.append(f"{fnmatch.translate(function).removesuffix(chr(92) + 'Z').removesuffix(chr(92) + 'z')}\n{inside}")
    return re.compile("|".join(f"(?:{part})" for part in parts)) if parts else None


def read_frame(frame: Frame) -> FrameMeaning:
    """What this frame says, by roles.toml.

    >>> read_frame(Frame("all_reduce", "torch/distributed/distributed_c10d.py", 2806)).doing.kind
    'collective'
    """
    return _meaning(frame.function, frame.file, frame.native)


_PROTOCOL = re.compile(  # files of a client of some protocol: what they read and write is no file
    r"(?:^|/)(?:amqp|mqtt|thrift|https?|rpc|net)/"
    r"|(?:conn|connections?|sockets?|clients?|transports?|protocols?|https?|network|rpc|iostream|packets?|response|imaplib|poplib|selector_events)\.py$",
    re.IGNORECASE,
)


@functools.lru_cache(maxsize=65536)
def _meaning(function: str, file: str, native: bool) -> FrameMeaning:
    """Whatever the line: in a large job every process may stand at another one."""
    table, frame = _table(), Frame(function, file, native=native)
    found = {layer: next((rule for rule, matcher in table.layers[layer] if matcher.fits(frame)), None) for layer in _LAYERS}
    doing = found["doing"]
    if doing is not None and doing.io and not native and _PROTOCOL.search(file):
        doing = next((rule for rule, _ in table.layers["doing"] if rule.service), doing)
    return FrameMeaning(
        doing=doing,
        over=found["over"],
        lock=found["lock"],
        owner=found["owner"],
        within=found["within"],
        duty=found["duty"],
        aside=found["aside"] is not None,
        apart=found["apart"],
        rest=found["rest"] is not None,
        hint=found["hint"],
        plumbing=table.plumbing.fits(frame),
        neutral=table.neutral.fits(frame),
    )


@functools.cache
def _table() -> _Table:
    read = [(path := Path(__file__).with_name(name), tomllib.loads(path.read_text(encoding="utf-8"))) for name in _TABLES]
    layers = {layer: tuple(_rule(entry, path) for path, data in read for entry in data.get(layer, ())) for layer in _LAYERS}
    plain = {
        layer: _Matcher(*([p for _, data in read for p in data.get(layer, {}).get(kind, ())] for kind in ("patterns", "native")))
        for layer in _PLAIN
    }
    return _Table(layers, plain["plumbing"], plain["neutral"])


def _rule(entry: Mapping[str, Any], path: Path) -> tuple[Rule, _Matcher]:
    unknown = entry.keys() - _KEYS
    if unknown:
        raise ConfigError(f"{path}: unknown key {sorted(unknown)[0]!r} in the rule {entry.get('reason')!r}")
    fields = {key: value for key, value in entry.items() if key not in ("patterns", "native")}
    rule = Rule(**fields)
    for name, value, allowed in (("kind", rule.kind, Kind), ("stance", rule.stance, Stance), ("blame", rule.blame, Blame)):
        if value not in get_args(allowed):
            raise ConfigError(f"{path}: {name} of {rule.reason!r} is {value!r}: use one of {', '.join(get_args(allowed))}")
    return rule, _Matcher(entry.get("patterns", ()), entry.get("native", ()))


_SHOWN = 24
_TRAINING = frozenset({"train", "fit", "pretrain", "train_step", "training_step", "train_epoch", "train_one_epoch"})
_IN_THE_PROGRAM = _TRAINING | {"main", "run", "evaluate"}
_BEGINS = _TRAINING | {"main", "<module>"}
_WRAPS = re.compile(r"wrap|decorat|^_?inner$")
_STANDARD = sys.stdlib_module_names - {"test", "code", "trace", "run", "this"}  # scripts are called so, too
_TRAINS = re.compile(r"train_|training_|.*_train(?:_|$)|.*_training(?:_|$)|forward_backward")


@dataclass(frozen=True, slots=True)
class Role:
    """What one process does, from its deciding thread.

    stance: "waits" for peers; "may wait" (its device or its gradients, and behind them perhaps peers); "outside": busy elsewhere;
    "unclear": code that no rule knows; "idle": nothing is asked of it; "none": no stack.
    part: "" for a training process, else what it is instead.
    duty: what it may be doing for all ranks ("saves"), if it is the one that does such things. start: part of the job's start.
    key: what makes a group. frames: the same with lines, innermost first, plumbing left out.
    """

    kind: Kind
    stance: str
    reason: str
    key: tuple[tuple[str, str], ...] = ()
    frames: tuple[Frame, ...] = ()
    blame: Blame = "unknown"
    weight: float = 0.5
    start: bool = False
    io: bool = False
    within: str = ""
    part: str = ""
    duty: str = ""


@functools.lru_cache(maxsize=16384)
def read_stack(frames: tuple[Frame, ...]) -> Role:
    """What a thread with these frames, innermost first, is doing."""
    duty = next((rule.reason for frame in frames if (rule := read_frame(frame).duty) is not None), "")
    role = _read_frames(frames)
    return replace(role, duty=duty) if duty else role


def _read_frames(frames: tuple[Frame, ...]) -> Role:
    key, shown = _key(frames), _shown(frames)
    part = next((rule for frame in reversed(frames) if (rule := read_frame(frame).apart) is not None), None)
    doing, within = doing_of(frames), _within(frames)
    starts = _is_start(frames)
    if part is not None:
        return Role(part.kind, "outside", part.reason, key, shown, part=part.reason, io=doing is not None and doing.io)
    if doing is not None and doing.stance == "waits":
        start = doing.start or (within is not None and within.start)
        return Role(doing.kind, "waits", doing.reason, key, shown, start=start, within=within.reason if within else "")
    if within is not None and not (within.weak and doing is not None) and not _is_beside(doing, within):
        return _inside(doing, within, key, shown, starts)
    if doing is not None:
        return Role(doing.kind, doing.stance, doing.reason, key, shown, doing.blame, doing.weight, doing.start or starts, doing.io)
    place = next((frame for frame in shown if not frame.native), shown[0] if shown else Frame("?"))
    hint = _hint(shown)
    if hint is not None:
        return Role("other", "unclear", f"in {_at(place)}: {hint.reason}, by its name", key, shown, hint.blame, hint.weight)
    blame: Blame = "unknown" if is_parked(frames) else "machine"  # it waits for a thread of its own, and nothing says for which
    return Role("other", "unclear", f"in {_at(place)}", key, shown, blame, 0.75)


_HINTED = 2


def _hint(shown: Sequence[Frame]) -> Rule | None:
    """What the innermost functions are called, where no rule knows them. Python's own library says nothing of what it was called for."""
    own = [frame for frame in shown if not frame.native and not is_standard(frame)]
    return next((rule for frame in own[:_HINTED] if (rule := read_frame(frame).hint) is not None), None)


def _is_beside(doing: Rule | None, within: Rule) -> bool:
    """A log that waits for its device has found the device, not the log, at work."""
    return doing is not None and within.owns == "files" and not doing.io and not doing.weak


def _inside(doing: Rule | None, within: Rule, key: tuple[tuple[str, str], ...], shown: tuple[Frame, ...], starts: bool) -> Role:
    """A file that is read while data are loaded: the kind is data loading, the blame is the file's."""
    start, io = within.start or starts, doing is not None and doing.io
    reason = within.reason if doing is None or doing.weak else f"{doing.reason} ({within.reason})"
    blame, weight = within.blame, within.weight
    if doing is not None and not start and within.kind != "checkpoint" and not doing.weak and not within.owns:
        blame, weight = doing.blame, doing.weight
    return Role(within.kind, "outside", reason, key, shown, blame, weight, start, io, within.reason)


def _at(frame: Frame) -> str:
    if not frame.file:
        return frame.function
    return f"{frame.function} ({frame.file.rsplit('/', 1)[-1]}{f':{frame.line}' if frame.line else ''})"


def doing_of(frames: Sequence[Frame]) -> Rule | None:
    """The innermost frame that a rule knows; of native ones down to the innermost Python one, a wait goes before its system call."""
    over = next(((at, rule) for at, frame in enumerate(frames) if (rule := read_frame(frame).over) is not None), None)
    if over is not None and not _runs_in(frames, over[0]):
        return over[1]
    lock = _lock(frames)
    if lock is not None:
        return lock
    first_python = next((index for index, frame in enumerate(frames) if not frame.native), len(frames))
    native = [rule for frame in frames[:first_python] if (rule := read_frame(frame).doing) is not None]
    python = _python_doing(frames[first_python:])
    waits = [rule for rule in native if rule.stance == "waits"]
    if waits:  # a collective's messages and a plain message share their innermost functions: NCCL's say nothing of which it is
        called = (python,) if python is not None and python.stance == "waits" else ()
        return next((rule for rule in (*waits, *called) if rule.kind == "point to point"), waits[0])
    device = next((rule for rule in native if rule.stance == "may wait"), None)
    if device is not None and (python is None or python.stance != "waits"):
        return device
    if python is not None and (python.stance == "waits" or not native):
        return python
    if native and (native[0].kind == "idle" or is_socket(native[0])):
        return _service(frames) or native[0]
    return native[0] if native else python


def _lock(frames: Sequence[Frame]) -> Rule | None:
    """The lock that the innermost compiled frames wait for. One that does not say whose it is gets its owner from the frame that asks for
    it; inside a collective it is a part of that."""
    mutex: Rule | None = None
    for frame in frames:
        if not frame.native:
            break
        meaning = read_frame(frame)
        if meaning.lock is not None and not meaning.lock.bare:
            return meaning.lock
        if mutex is not None and meaning.owner is not None:
            return meaning.owner
        if mutex is not None and meaning.doing is not None and meaning.doing.stance == "waits":
            return None
        mutex = mutex or meaning.lock
        if mutex is None and not meaning.neutral:
            break
    return mutex


def is_parked(frames: Sequence[Frame]) -> bool:
    """Whether the innermost compiled frames only sleep until another thread wakes them, and say nothing of what for."""
    inner = frames[:2]
    return len(inner) == 2 and all(frame.native for frame in inner) and read_frame(frames[0]).neutral and frames[0].function != "??"


def is_socket(rule: Rule) -> bool:
    return rule.kind == "point to point" and rule.stance == "outside"


def _service(frames: Sequence[Frame]) -> Rule | None:
    """Of a process that sleeps, or reads a socket: the service to which it talks, or talks again after a while."""
    return next((rule for frame in frames if (rule := read_frame(frame).doing) is not None and rule.service), None)


def _python_doing(frames: Sequence[Frame]) -> Rule | None:
    weak: Rule | None = None
    waiting: Rule | None = None
    bare = True  # nothing but plumbing so far
    for index, frame in enumerate(frames):
        meaning = read_frame(frame)
        rule = meaning.doing
        if frame.native or (meaning.plumbing and rule is None):
            continue
        if rule is not None:
            if rule.bare:
                waiting = waiting or rule
                continue
            if waiting is not None:
                return rule if rule.stance == "waits" else waiting
            if weak is None and (bare or rule.stance != "may wait") and not rule.weak:
                if rule.stance == "may wait" and (caller := _caller(frames[index + 1 :])) is not None and caller.stance == "waits":
                    return caller  # a message is often waited for by a wait for the whole device
                return _service(frames) or rule if rule.kind == "idle" or is_socket(rule) else rule
            if rule.stance == "waits":
                return rule
            weak = weak or (rule if rule.weak else None)
        bare = bare and rule is not None
    return waiting or weak


def _caller(frames: Sequence[Frame]) -> Rule | None:
    """What the nearest frame that says something does."""
    meanings = (read_frame(frame) for frame in frames if not frame.native)
    return next((meaning.doing for meaning in meanings if not meaning.plumbing), None)


def _within(frames: Sequence[Frame]) -> Rule | None:
    """The innermost strong one, else the innermost. A module that is being imported goes before what its code would mean when called."""
    rules = [(index, rule) for index, frame in enumerate(frames) if (rule := read_frame(frame).within) is not None]
    rules = [(index, rule) for index, rule in rules if not (rule.owns and _runs_in(frames, index))]
    importing = next(((index, rule) for index, rule in rules if rule.imports), None)
    if importing is not None and not any(frame.function in _IN_THE_PROGRAM for frame in frames[: importing[0]]):
        return importing[1]
    called = [rule for _, rule in rules if not rule.imports]
    return next((rule for rule in called if not rule.weak), called[0] if called else None)


def _runs_in(frames: Sequence[Frame], at: int) -> bool:
    """Whether the program itself runs inside the frame at this place, as under a profiler or a debugger that began it, or in a function
    that a tool's decorator wraps."""
    own = [frame for frame in frames[:at] if not frame.native and not is_standard(frame) and not read_frame(frame).plumbing]
    if _WRAPS.search(frames[at].function):
        return any(frame.file != frames[at].file for frame in own)
    return any(frame.function in _BEGINS or _TRAINS.match(frame.function) for frame in own)


def is_standard(frame: Frame) -> bool:
    """Whether the file is of Python's own library, by its first folder or its name."""
    return frame.file.partition("/")[0].removesuffix(".py") in _STANDARD


def _is_start(frames: Sequence[Frame]) -> bool:
    """Some outer frame is part of the job's start, whatever the innermost ones do: a model's file that is read is no faulty disk."""
    return any((rule := read_frame(frame).within) is not None and rule.start and not rule.imports for frame in frames)


def _shown(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Frames that say something; compiled code only where there is nothing else."""
    python = any(not frame.native for frame in frames)
    telling = [frame for frame in frames if not read_frame(frame).plumbing and not (python and frame.native)]
    return tuple(telling or frames)[:_SHOWN]


def _key(frames: Sequence[Frame]) -> tuple[tuple[str, str], ...]:
    """Function and file of every frame that says something. Native frames count only where there are no others."""
    if any(not frame.native for frame in frames):
        kept = [frame for frame in frames if not frame.native and not read_frame(frame).plumbing]
        kept = kept or [frame for frame in frames if not frame.native]
    else:
        kept = [frame for frame in frames if "::" in frame.function or read_frame(frame).doing is not None]
        kept = kept or [frame for frame in frames if frame.function != "??"][:3] or list(frames[:1])
    return tuple((frame.function, frame.file.rsplit("/", 1)[-1]) for frame in kept)


def telling(frames: Sequence[Frame]) -> list[Frame]:
    """Python frames that are not plumbing, or, where there is no Python, all compiled ones."""
    python = [frame for frame in frames if not frame.native]
    return [frame for frame in python if not read_frame(frame).plumbing] if python else list(frames)


def trains(frames: Sequence[Frame]) -> bool:
    """Whether a function on the stack is called like a part of training."""
    return any(frame.function in _TRAINING or _TRAINS.match(frame.function) for frame in frames if not frame.native)


def is_training(frames: Sequence[Frame]) -> bool:
    """Whether a stack trains: by its functions' names, or by what it does."""
    doing = doing_of(frames)
    return trains(frames) or (doing is not None and doing.kind in ("collective", "point to point", "compute"))
