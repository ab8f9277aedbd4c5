"""Which ranks a cache serves, and what it knows of the job from them. Kept in its folder, so that a cache that starts again goes on."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minder.model.private import replace_private

__all__ = ["Kept", "Member", "Members", "kept_steps"]

_FILE = "members.json"


@dataclass(frozen=True, slots=True)
class Member:
    """One rank. backup_url: the cache that holds its backups; "" where the job has one machine. token: what the job's caches show
    each other in this generation. body_bytes: of its records; 0 while unknown. ring: so many committed steps stay in memory. flush_dir: ""
    where nothing goes to a disk; flush_keep: so many steps stay there, and each that keep_every divides (0: none)."""

    rank: int
    generation: int
    world_size: int
    backup_url: str = ""
    token: str = field(default="", repr=False)
    body_bytes: int = 0
    flush_dir: str = ""
    flush_every: int = 0
    is_done: bool = False
    ring: int = 1
    flush_keep: int = 3
    keep_every: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """A committed step that stays. update, skipped: as in its records. time_s: when it was committed, since the epoch; 0 if unknown."""

    step: int
    generation: int
    update: int = 0
    skipped: str = ""
    time_s: float = 0.0


class Members:
    """The ranks of the newest generation. committed: the newest (step, generation) of which all ranks have a record and its backup.
    kept: that one, and those before it that stay for a rollback, newest first."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self.ranks: dict[int, Member] = {}
        self.former_token = ""
        self.committed: tuple[int, int] | None = None
        self.kept: tuple[Kept, ...] = ()
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            self._adopt(json.loads(self._path.read_text()))

    @property
    def generation(self) -> int:
        return max((member.generation for member in self.ranks.values()), default=-1)

    @property
    def tokens(self) -> tuple[str, ...]:
        """Of this generation, and of the one before it: machines do not change over at the same moment."""
        found = {member.token for member in self.ranks.values()} | {self.former_token}
        return tuple(sorted(found - {""}))

    def join(self, member: Member) -> bool:
        """False for a rank of a generation that is over. The ranks of an older one go."""
        if member.generation < self.generation:
            return False
        if member.generation > self.generation:
            self.former_token = next((known.token for known in self.ranks.values()), "")
            self.ranks = {}
        self.ranks[member.rank] = member
        self._save()
        return True

    def change(self, rank: int, **changes: Any) -> None:
        self.ranks[rank] = dataclasses.replace(self.ranks[rank], **changes)
        self._save()

    def commit(self, new: Kept) -> bool:
        """False where that or a newer one was known. After a rollback steps of the run that was left do not stay."""
        if self.committed is not None and (new.generation, new.step) <= (self.committed[1], self.committed[0]):
            return False
        self.committed = (new.step, new.generation)
        ring = max((member.ring for member in self.ranks.values()), default=1)
        self.kept = (new, *[each for each in self.kept if each.step < new.step][: ring - 1])
        self._save()
        return True

    def keeps(self, step: int, generation: int) -> bool:
        return any((each.step, each.generation) == (step, generation) for each in self.kept)

    def _save(self) -> None:
        ranks = [dataclasses.asdict(member) for member in self.ranks.values()]
        kept = [dataclasses.asdict(each) for each in self.kept]
        content = {"ranks": ranks, "former_token": self.former_token, "committed": self.committed, "kept": kept}
        replace_private(self._path, json.dumps(content))

    def _adopt(self, content: dict[str, Any]) -> None:
        ranks = {item["rank"]: Member(**item) for item in content["ranks"]}
        committed = content["committed"]
        self.ranks, self.former_token = ranks, str(content["former_token"])
        self.committed = None if committed is None else (int(committed[0]), int(committed[1]))
        self.kept = _kept(content)


def kept_steps(folder: Path) -> tuple[Kept, ...] | None:
    """What the cache of this folder keeps in memory, newest first, without a question to it; None where that is not known."""
    try:
        return _kept(json.loads((folder / _FILE).read_text()))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _kept(content: dict[str, Any]) -> tuple[Kept, ...]:
    """A cache of before knew the newest step only."""
    if "kept" not in content and content["committed"] is not None:
        return (Kept(int(content["committed"][0]), int(content["committed"][1])),)
    return tuple(Kept(**item) for item in content.get("kept", ()))
