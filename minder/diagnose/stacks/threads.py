"""What a process is doing: which of its threads decides, and what a dump that was cut off still says.

The main thread decides, unless it only waits for another thread of its own (the backward pass, a joined thread, a future) or is asked for
nothing (an actor's or an event loop's main thread): then the thread that trains decides.

Dumps are cut off by a full disk, a copy that broke, a tool that was killed. What is missing are the outermost frames of one thread and all
threads after it. A stack is cut off if it does not reach the program's beginning where those of most others do. It stands where the largest
group stands that begins in the same way. Where all that is left are threads that others have beside their main thread, the main thread is
what is missing, and the dump says nothing.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from minder.diagnose.stacks.records import Frame, Process, Thread
from minder.diagnose.stacks.roles import Role, doing_of, is_socket, is_training, read_frame, read_stack, telling, trains

__all__ = ["complete_roles", "main_thread", "program_of", "read_role"]

_CHILD = "a process of its own"
_STARTED = ("_bootstrap", "_bootstrap_inner", "thread_run")
_STANCES = ("waits", "may wait", "outside", "unclear")
_TRAINER = re.compile(r"train", re.IGNORECASE)
_STARTERS = frozenset({"default_worker.py", "<string>", "spawn.py", "forkserver.py"})  # they start any program
_CALLS = re.compile(r"[.(\[ ].*$|\d+")


def read_role(process: Process) -> Role:
    """The role of a process. One without a stack has none, and says why; one below a training process is a part of that."""
    part = _CHILD if process.child else ""
    if not any(thread.frames for thread in process.threads):
        return Role("other", "none", process.problem or "no stack", part=part)
    threads = tuple(_running(thread) if thread.active else thread for thread in process.threads)
    role = _read_threads(threads if len(threads) < 2 else _alike(threads))
    return replace(role, part=part) if part and not role.part else role


def _running(thread: Thread) -> Thread:
    """Without the locks that a thread on a processor passes through: one that waits for them sleeps, unless they spin."""
    frames = thread.frames
    inner = next((index for index, frame in enumerate(frames) if not (frame.native and _passes(frame))), len(frames))
    return replace(thread, frames=frames[inner:]) if 0 < inner < len(frames) else thread


def _passes(frame: Frame) -> bool:
    meaning = read_frame(frame)
    return meaning.neutral or (meaning.lock is not None and not meaning.lock.spins)


def _alike(threads: Sequence[Thread]) -> tuple[Thread, ...]:
    """Without names and numbers: processes that differ only in those share one answer."""
    main = main_thread(threads)
    return tuple(
        Thread(thread.frames, name="train" if "rain" in thread.name and _TRAINER.search(thread.name) else "", main=thread is main)
        for thread in threads
        if thread.frames
    )


def main_thread(threads: Sequence[Thread]) -> Thread:
    """The main thread: named so by the dump, else rooted in a module, else the one with the deepest stack."""
    named = [thread for thread in threads if thread.main and thread.frames]
    if named:
        return max(named, key=lambda thread: (thread.name == "MainThread", len(thread.frames)))
    rooted = [thread for thread in threads if thread.frames and thread.frames[-1].function == "<module>"]
    return max(rooted or threads, key=lambda thread: len(thread.frames))


def program_of(process: Process) -> str:
    """What marks a process's program: the file in which it begins, without its folder; behind a starter of any program, the
    actor's class or the first function that is called. "" where the dump does not show it."""
    if not any(thread.frames for thread in process.threads):
        return ""
    frames = main_thread(process.threads).frames
    roots = [frame.file for frame in frames if frame.function == "<module>" and not frame.native]
    root = roots[-1].rsplit("/", 1)[-1] if roots else ""
    if root not in _STARTERS:
        return root
    title = _CALLS.sub("", process.title)
    outer = [frame for frame in reversed(telling(frames)) if "multiprocessing/" not in frame.file and frame.function != "<module>"]
    first = f"{outer[0].function} {outer[0].file}" if outer and not read_frame(outer[0]).rest else ""
    return f"{root} {title if '::' in title else first}".strip()


@functools.lru_cache(maxsize=16384)
def _read_threads(threads: tuple[Thread, ...]) -> Role:
    main = main_thread(threads)
    role = read_stack(main.frames)
    if role.part:
        return role
    others = [thread for thread in threads if thread is not main and thread.frames and not _helps(thread.frames)]
    if _rests(main.frames):
        working = [thread for thread in others if not _rests(thread.frames)]
        idle = replace(role, kind="idle", stance="idle", reason="idle: nothing is asked of it", blame="software", weight=0.5)
        return _foremost(working) or idle
    if _holds_elsewhere(main.frames):
        device = [behind for thread in others if (behind := read_stack((*thread.frames, *main.frames))).stance == "may wait"]
        return device[0] if device else role
    if not _defers(main.frames):
        trainers = [thread for thread in others if _is_trainer(thread)] if _only_watches(main.frames, role) else []
        return _foremost(trainers) or role
    return _behind(main, role, others)


def _behind(main: Thread, role: Role, others: Sequence[Thread]) -> Role:
    """The thread that the main one waits for, as far as the dump shows it."""
    deciding = [thread for thread in others if _may_decide(thread, main.frames)]
    known = [read_stack((*thread.frames, *main.frames)) for thread in sorted(deciding, key=lambda thread: not is_training(thread.frames))]
    for stance in _STANCES[:3]:
        for other in known:
            if other.stance == stance and other.key != role.key:
                return other
    return _foremost([thread for thread in deciding if _is_trainer(thread)]) or role


def _foremost(threads: Iterable[Thread]) -> Role | None:
    """What the thread does that trains, or else the one that does something that a rule knows, or the only one there is."""
    found = [(not (_is_trainer(thread) or is_training(thread.frames)), read_stack(thread.frames)) for thread in threads]
    found = [(beside, role) for beside, role in found if not beside or role.stance != "unclear" or len(found) == 1]
    known = [(beside, _STANCES.index(role.stance), role) for beside, role in found if not (beside and _is_rest_of(role))]
    return min(known, key=lambda item: item[:2])[2] if known else None


def _is_rest_of(role: Role) -> bool:
    """A thread beside the training that sleeps or waits for a lock serves it."""
    return role.kind == "idle" or (role.kind == "other" and role.reason.startswith("waiting for a lock, a queue"))


def _is_trainer(thread: Thread) -> bool:
    return thread.name == "train" or trains(thread.frames)


def _helps(frames: Sequence[Frame]) -> bool:
    return any(read_frame(frame).aside for frame in frames)


def _rests(frames: Sequence[Frame]) -> bool:
    """Whether a thread waits to be called: its innermost function, or the one that this selects or sleeps for, is such a loop."""
    meanings = [read_frame(frame) for frame in telling(frames)]
    if not any(not frame.native for frame in frames):
        return any(meaning.rest for meaning in meanings) and not any(
            meaning.doing is not None and not meaning.doing.weak for meaning in meanings
        )
    waits = bool(meanings) and meanings[0].doing is not None and (meanings[0].doing.weak or is_socket(meanings[0].doing))
    return any(meaning.rest for meaning in meanings[: 2 if waits else 1])


def _holds_elsewhere(frames: Sequence[Frame]) -> bool:
    """A mutex that does not say whose it is: its holder may be a thread that waits for the device."""
    doing = doing_of(frames)
    return doing is not None and doing.bare and doing.stance == "outside" and frames[0].native


def _only_watches(frames: Sequence[Frame], role: Role) -> bool:
    """The main thread sleeps, listens on a socket, or is in code that no rule knows, and nothing in it is called like training."""
    on_a_socket = role.kind == "point to point" and role.stance == "outside"
    return (role.stance == "unclear" or role.kind == "idle" or on_a_socket) and not trains(frames)


def _may_decide(thread: Thread, main: Sequence[Frame]) -> bool:
    """Not one that idles itself, nor a pool's for which the main thread does not wait. The backward pass runs in threads of compiled code,
    never in one that Python started."""
    frames = thread.frames
    if _rests(frames):
        return False
    if _is_pooled(frames) and not (is_training(frames) or _waits_for_pool(main)):
        return False
    doing = doing_of(frames)
    if doing is not None and (doing.weak or doing.kind == "idle") and not _is_trainer(thread):
        return False
    backward = next((rule for frame in main if (rule := read_frame(frame).doing) is not None), None)
    return backward is None or not backward.backward or not any(frame.function in _STARTED for frame in frames[-3:])


def _is_pooled(frames: Sequence[Frame]) -> bool:
    return any(frame.file.endswith("concurrent/futures/thread.py") for frame in frames)


def _waits_for_pool(main: Sequence[Frame]) -> bool:
    return any("concurrent/futures" in frame.file or "asyncio" in frame.file for frame in main)


def _defers(frames: Sequence[Frame]) -> bool:
    """True where the main thread only waits for another thread of its own: the backward pass, a future, a joined thread."""
    meanings = [read_frame(frame) for frame in frames if not read_frame(frame).plumbing]
    first = next((meaning for meaning in meanings if meaning.doing is not None), None)
    if first is None or first.doing is None:
        return False
    loads = any(meaning.within is not None and meaning.within.kind == "data loading" for meaning in meanings)
    return first.doing.backward or (first.doing.weak and not loads)


_PYTHON_ROOTS = frozenset({"<module>", "_run_module_as_main"})
_NATIVE_ROOTS = frozenset({"_start", "__libc_start_main", "__libc_start_call_main", "clone", "clone3", "main"})
_LOST = Role("other", "none", "the dump is cut off before its main thread")
_Place = tuple[tuple[str, str], ...]


def complete_roles(processes: Sequence[Process], roles: Sequence[Role]) -> list[Role]:
    """The roles, those of cut-off dumps put right. Nothing changes where most stacks do not reach a beginning."""
    stacks = [main_thread(process.threads).frames if role.key else () for process, role in zip(processes, roles, strict=True)]
    whole = [bool(frames) and frames[-1].function in (_NATIVE_ROOTS if frames[-1].native else _PYTHON_ROOTS) for frames in stacks]
    readable = [number for number, frames in enumerate(stacks) if frames]
    cut = [number for number in readable if not whole[number] and not roles[number].part]
    if not cut or len(cut) * 2 >= len(readable):
        return list(roles)
    sizes: Counter[_Place] = Counter()
    homes: dict[_Place, Role] = {}
    for number in readable:
        if whole[number] and not roles[number].part:
            for place in _forms(stacks[number]):
                sizes[place] += 1
                homes.setdefault(place, roles[number])
    found = list(roles)
    beside: frozenset[_Place] | None = None
    for number in cut:
        begun = [place for place in sizes if any(_begins(place, part) for part in _forms(stacks[number])[:2])]
        if begun:
            found[number] = homes[max(begun, key=lambda place: sizes[place])]
            continue
        beside = _beside(processes, whole) if beside is None else beside
        left = [_forms(thread.frames)[:2] for thread in processes[number].threads if thread.frames]
        if all(any(_begins(other, place) for other in beside for place in forms) for forms in left):
            found[number] = _LOST
    return found


@functools.lru_cache(maxsize=4096)
def _forms(frames: tuple[Frame, ...]) -> tuple[_Place, ...]:
    """Function and file of the Python frames that say something, of all of them, and of the compiled ones: what is left of a stack may
    end inside a name that says nothing, or in compiled code. Without Python frames the compiled ones are all there is."""
    python = [frame for frame in frames if not frame.native]
    telling = [frame for frame in python if not read_frame(frame).plumbing]
    native = [frame for frame in frames if frame.native]
    found = (tuple((frame.function, frame.file.rsplit("/", 1)[-1]) for frame in kind) for kind in (telling or python, python, native))
    return tuple(dict.fromkeys(place for place in found if place))


def _begins(whole: _Place, part: _Place) -> bool:
    """Whether `part` is the beginning of `whole`; its last function's name may be cut itself."""
    last = len(part) - 1
    return last < len(whole) and whole[:last] == part[:last] and whole[last][0].startswith(part[last][0])


def _beside(processes: Sequence[Process], whole: Sequence[bool]) -> frozenset[_Place]:
    """Where threads stand that are not the main one, in dumps that are whole."""
    return frozenset(
        place
        for process, is_whole in zip(processes, whole, strict=True)
        if is_whole
        for thread in process.threads
        if thread.frames and thread is not main_thread(process.threads)
        for place in _forms(thread.frames)[:2]
    )
