"""Dumps that were cut off: a full disk, a copy that broke, a tool that was killed. What is missing are the outermost frames of one
thread and all threads after it.

A stack is cut off if it does not reach the program's beginning where those of most others do. It stands where the largest group
stands that begins in the same way. Where all that is left are threads that others have beside their main thread, the main thread is
what is missing, and the dump says nothing.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence

from minder.diagnose.stacks.records import Frame, Process
from minder.diagnose.stacks.roles import Role
from minder.diagnose.stacks.rules import read_frame
from minder.diagnose.stacks.threads import main_thread

__all__ = ["complete_roles"]

_PYTHON_ROOTS = frozenset({"<module>", "_run_module_as_main"})
_NATIVE_ROOTS = frozenset({"_start", "__libc_start_main", "__libc_start_call_main", "clone", "clone3", "main"})
_LOST = Role("other", "none", "the dump is cut off before its main thread")
_Place = tuple[tuple[str, str], ...]


def complete_roles(processes: Sequence[Process], roles: Sequence[Role]) -> list[Role]:
    """The roles, those of cut-off dumps put right. Nothing changes where most stacks do not reach a beginning."""
    stacks = [main_thread(process.threads).frames if role.key else () for process, role in zip(processes, roles, strict=True)]
    whole = [bool(frames) and frames[-1].function in (_NATIVE_ROOTS if frames[-1].native else _PYTHON_ROOTS) for frames in stacks]
    told = [number for number, frames in enumerate(stacks) if frames]
    cut = [number for number in told if not whole[number] and not roles[number].part]
    if not cut or len(cut) * 2 >= len(told):
        return list(roles)
    sizes: Counter[_Place] = Counter()
    homes: dict[_Place, Role] = {}
    for number in told:
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
