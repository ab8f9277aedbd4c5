"""What a process is doing: which of its threads decides, and what its frames say."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from minder.stacks.records import Frame, Kind, Process, Thread
from minder.stacks.rules import Blame, Rule, read_frame

__all__ = ["Role", "main_thread", "program_of", "read_role"]

_SHOWN = 24
_CHILD = "a process of its own"
_STARTED = ("_bootstrap", "_bootstrap_inner", "thread_run")
_TRAINING = frozenset(
    {"main", "train", "fit", "pretrain", "train_step", "training_step", "train_epoch", "run", "train_one_epoch", "evaluate"}
)


@dataclass(frozen=True, slots=True)
class Role:
    """What one process does, from its deciding thread.

    stance: "waits" for peers; "may wait" (its device or its gradients, and behind them perhaps peers); "outside": busy elsewhere;
    "unclear": code that no rule knows; "none": no stack. part: "" for a training process, else what it is instead.
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


def read_role(process: Process) -> Role:
    """The role of a process. One without a stack has none, and says why; one below a training process is a part of that."""
    part = _CHILD if process.child else ""
    if not any(thread.frames for thread in process.threads):
        return Role("other", "none", process.problem or "no stack", part=part)
    role = _read_threads(process.threads if len(process.threads) < 2 else _telling(process.threads))
    return replace(role, part=part) if part and not role.part else role


def _telling(threads: Sequence[Thread]) -> tuple[Thread, ...]:
    """Without names and numbers: processes that differ only in those share one answer."""
    main = main_thread(threads)
    return tuple(Thread(thread.frames, main=thread is main) for thread in threads if thread.frames)


def main_thread(threads: Sequence[Thread]) -> Thread:
    """The main thread: named so by the dump, else rooted in a module, else the one with the deepest stack."""
    named = [thread for thread in threads if thread.main and thread.frames]
    if named:
        return max(named, key=lambda thread: (thread.name == "MainThread", len(thread.frames)))
    rooted = [thread for thread in threads if thread.frames and thread.frames[-1].function == "<module>"]
    return max(rooted or threads, key=lambda thread: len(thread.frames))


def program_of(process: Process) -> str:
    """The file in which the main thread's program begins, without its folder; "" where the dump does not show it."""
    if not any(thread.frames for thread in process.threads):
        return ""
    roots = [frame.file for frame in main_thread(process.threads).frames if frame.function == "<module>" and not frame.native]
    return roots[-1].rsplit("/", 1)[-1] if roots else ""


@functools.lru_cache(maxsize=16384)
def _read_threads(threads: tuple[Thread, ...]) -> Role:
    main = main_thread(threads)
    role = _read_stack(main.frames)
    if role.part or not _defers(main.frames):
        return role
    others = [thread for thread in threads if thread is not main and thread.frames and _may_decide(thread.frames, main.frames)]
    told = [_read_stack((*thread.frames, *main.frames)) for thread in others]
    for stance in ("waits", "may wait", "outside"):
        for other in told:
            if other.stance == stance and other.key != role.key:
                return other
    return role


def _may_decide(frames: Sequence[Frame], main: Sequence[Frame]) -> bool:
    """Not a helper, nor one that idles itself. The backward pass runs in threads of compiled code, never in one that Python started."""
    if any(read_frame(frame).aside for frame in frames):
        return False
    doing = _doing(frames)
    if doing is not None and (doing.weak or doing.kind == "idle"):
        return False
    backward = next((rule for frame in main if (rule := read_frame(frame).doing) is not None), None)
    return backward is None or not backward.backward or not any(frame.function in _STARTED for frame in frames[-3:])


def _defers(frames: Sequence[Frame]) -> bool:
    """True where the main thread only waits for another thread of its own: the backward pass, a future, a joined thread."""
    meanings = [read_frame(frame) for frame in frames if not read_frame(frame).plumbing]
    first = next((meaning for meaning in meanings if meaning.doing is not None), None)
    if first is None or first.doing is None:
        return False
    loads = any(meaning.within is not None and meaning.within.kind == "data loading" for meaning in meanings)
    return first.doing.backward or (first.doing.weak and not loads)


@functools.lru_cache(maxsize=16384)
def _read_stack(frames: tuple[Frame, ...]) -> Role:
    duty = next((rule.reason for frame in frames if (rule := read_frame(frame).duty) is not None), "")
    role = _read_frames(frames)
    return replace(role, duty=duty) if duty else role


def _read_frames(frames: tuple[Frame, ...]) -> Role:
    key, shown = _key(frames), _shown(frames)
    part = next((rule for frame in reversed(frames) if (rule := read_frame(frame).apart) is not None), None)
    doing, within = _doing(frames), _within(frames)
    starts = _is_start(frames)
    if part is not None:
        return Role(part.kind, "outside", part.reason, key, shown, part=part.reason, io=doing is not None and doing.io)
    if doing is not None and doing.stance == "waits":
        start = doing.start or (within is not None and within.start)
        return Role(doing.kind, "waits", doing.reason, key, shown, start=start, within=within.reason if within else "")
    if within is not None and not (within.weak and doing is not None):
        return _inside(doing, within, key, shown, starts)
    if doing is not None:
        return Role(doing.kind, doing.stance, doing.reason, key, shown, doing.blame, doing.weight, doing.start or starts, doing.io)
    place = next((frame for frame in shown if not frame.native), shown[0] if shown else Frame("?"))
    return Role("other", "unclear", f"in {_at(place)}", key, shown, "machine", 0.75)


def _inside(doing: Rule | None, within: Rule, key: tuple[tuple[str, str], ...], shown: tuple[Frame, ...], starts: bool) -> Role:
    """A file that is read while data are loaded: the kind is data loading, the blame is the file's."""
    start, io = within.start or starts, doing is not None and doing.io
    reason = within.reason if doing is None or doing.weak else f"{doing.reason} ({within.reason})"
    blame, weight = within.blame, within.weight
    if doing is not None and not start and within.kind != "checkpoint" and not doing.weak:
        blame, weight = doing.blame, doing.weight
    return Role(within.kind, "outside", reason, key, shown, blame, weight, start, io, within.reason)


def _at(frame: Frame) -> str:
    if not frame.file:
        return frame.function
    return f"{frame.function} ({frame.file.rsplit('/', 1)[-1]}{f':{frame.line}' if frame.line else ''})"


def _doing(frames: Sequence[Frame]) -> Rule | None:
    """The innermost frame that a rule knows; of native ones down to the innermost Python one, a wait goes before its system call."""
    over = next((rule for frame in frames if (rule := read_frame(frame).over) is not None), None)
    if over is not None:
        return over
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
    if native and (native[0].kind == "idle" or _is_socket(native[0])):
        return _service(frames) or native[0]
    return native[0] if native else python


def _is_socket(rule: Rule) -> bool:
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
                return _service(frames) or rule if rule.kind == "idle" or _is_socket(rule) else rule
            if rule.stance == "waits":
                return rule
            weak = weak or (rule if rule.weak else None)
        bare = bare and rule is not None
    return waiting or weak


def _caller(frames: Sequence[Frame]) -> Rule | None:
    """What the nearest frame that says something does."""
    told = (read_frame(frame) for frame in frames if not frame.native)
    return next((meaning.doing for meaning in told if not meaning.plumbing), None)


def _within(frames: Sequence[Frame]) -> Rule | None:
    """The innermost strong one, else the innermost. A module that is being imported goes before what its code would mean when called."""
    rules = [(index, rule) for index, frame in enumerate(frames) if (rule := read_frame(frame).within) is not None]
    importing = next(((index, rule) for index, rule in rules if rule.imports), None)
    if importing is not None and not any(frame.function in _TRAINING for frame in frames[: importing[0]]):
        return importing[1]
    told = [rule for _, rule in rules if not rule.imports]
    return next((rule for rule in told if not rule.weak), told[0] if told else None)


def _is_start(frames: Sequence[Frame]) -> bool:
    """Some outer frame is part of the job's start, whatever the innermost ones do: a model's file that is read is no sick disk."""
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
