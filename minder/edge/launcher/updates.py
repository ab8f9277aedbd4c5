"""Updates of the job's code, arguments and variables, where the launcher's owner permits them: received, checked, laid out, run.

`--allow-updates DIR` is the permission, and the folder. A controller sends what a version needs over the launcher's own channel, behind its
token; nothing of it runs before a request for workers names that version. A variable is subject to the same list as those of a request.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minder.edge.launcher.settings import LaunchSettings
from minder.edge.launcher.variables import refused_variable
from minder.model.errors import WireError
from minder.wire.code_store import CodeStore
from minder.wire.code_tree import CodeTree, tree_of
from minder.wire.codec import from_json

__all__ = ["ProgramOrder", "Updates", "entry_in"]

_MOST_ARGUMENTS, _MOST_VARIABLES, _LONGEST = 1000, 200, 8192


@dataclass(frozen=True, slots=True)
class ProgramOrder:
    """What an update makes of the launcher's command. update: its number. code: the digest of its files, "" for those of the launcher's own
    script. env: variables besides the launcher's. args: of the script; None: the launcher's own."""

    update: int
    code: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    args: tuple[str, ...] | None = None


class Updates:
    """One launcher's. Every method raises WireError, one line, for what it does not take."""

    def __init__(self, settings: LaunchSettings) -> None:
        self._settings = settings
        folder = settings.allow_updates
        self._store = None if folder is None else CodeStore(folder / settings.job / "store")
        self._trees: dict[str, CodeTree] = {}  # by digest, of what was offered or found here

    @property
    def offered(self) -> bool:
        return self._store is not None

    def prepare(self, body: Any) -> dict[str, Any]:
        """{update, code, env, args, files}: lay the version out, or say which contents are missing. Starts nothing."""
        store, order = self._demand(), self._order(body)
        if not order.code:
            return {"ready": True, "missing": []}
        tree = tree_of(body.get("files"))
        if tree.digest != order.code:
            raise WireError(f"update {order.update}: its files are not those of {order.code[:12]}")
        entry_in(self._settings.command, tree)
        self._trees[order.code] = tree
        try:
            if missing := store.missing(tree):
                return {"ready": False, "missing": [item.sha256 for item in missing]}
            store.keep(tree)
            store.lay_out(tree, self._place(order.code))
            for gone in store.prune({order.code}):
                self._trees.pop(gone, None)
        except OSError as error:
            raise WireError(f"update {order.update} cannot be kept in {self._settings.allow_updates}: {error.strerror}") from error
        return {"ready": True, "missing": []}

    def receive(self, body: Any) -> dict[str, Any]:
        """{code, sha256, offset, data: base64}: one piece of a file of a version that was offered before."""
        store = self._demand()
        if not isinstance(body, Mapping) or not isinstance(body.get("offset"), int) or not isinstance(body.get("data"), str):
            raise WireError("a piece of code has code, sha256, offset and data (base64)")
        tree = self._trees.get(str(body.get("code")))
        item = None if tree is None else next((item for item in tree.files if item.sha256 == body.get("sha256")), None)
        if item is None:
            raise WireError("the piece belongs to no file of a version that was offered to this launcher: POST /v1/updates first")
        try:
            return {"here": store.receive(item, body["offset"], base64.b64decode(body["data"], validate=True))}
        except binascii.Error as error:
            raise WireError(f"{item.path}: data is no base64") from error
        except OSError as error:
            raise WireError(f"{item.path} cannot be kept in {self._settings.allow_updates}: {error.strerror}") from error

    def program(self, order: ProgramOrder | None) -> LaunchSettings:
        """What workers of that version are started with; None: the launcher's own command."""
        base = self._settings
        if order is None or not order.update:
            return base
        self._demand()
        order = self._order(order)
        command, root = base.command, None
        if order.code:
            root = self._place(order.code)
            tree = self._trees.get(order.code) or self._demand().tree(order.code)
            if not root.is_dir():
                raise WireError(f"the code of update {order.update} is not laid out here: POST /v1/updates first")
            command = entry_in(base.command, tree, root)
        if order.args is not None:
            command = (*command[: 2 if command[0] == "-m" else 1], *order.args)
        env = {**base.env, **order.env}
        return dataclasses.replace(base, command=command, env=env, update=order.update, update_env=dict(order.env), code_root=root)

    def _demand(self) -> CodeStore:
        if self._store is None:
            raise WireError(f"the launcher of {self._settings.machine} takes no updates: start it with --allow-updates DIR")
        return self._store

    def _order(self, body: Any) -> ProgramOrder:
        order = body if isinstance(body, ProgramOrder) else from_json(ProgramOrder, body)
        args = order.args or ()
        if order.update < 1:
            raise WireError(f"update is {order.update}: a number from 1 on")
        if len(args) > _MOST_ARGUMENTS or any("\0" in text or len(text) > _LONGEST for text in args):
            raise WireError(
                f"update {order.update}: at most {_MOST_ARGUMENTS} arguments of {_LONGEST} characters, without a null character"
            )
        if len(order.env) > _MOST_VARIABLES or any(len(value) > _LONGEST for value in order.env.values()):
            raise WireError(f"update {order.update}: at most {_MOST_VARIABLES} variables of {_LONGEST} characters")
        if why := refused_variable(order.env, self._settings.allow_env):
            raise WireError(f"update {order.update}: {why}")
        return order

    def _place(self, digest: str) -> Path:
        return (self._settings.allow_updates or Path()) / self._settings.job / "code" / digest


def entry_in(command: Sequence[str], tree: CodeTree, root: Path | None = None) -> tuple[str, ...]:
    """The launcher's command with its script, or its module, taken from a version's files: of a script the longest end of its path that is
    among them. Raises WireError where it is not.

    >>> from minder.wire.code_tree import CodeFile
    >>> entry_in(("/data/llm/src/train.py", "--lr", "1"), CodeTree((CodeFile("src/train.py", 0, ""),)), Path("/u"))
    ('/u/src/train.py', '--lr', '1')
    """
    if command[0] == "-m":
        name = (command[1] if len(command) > 1 else "").replace(".", "/")
        if not tree.paths & {f"{name}.py", f"{name}/__main__.py"}:
            raise WireError(f"the module {command[1:2]} is not in the code: give --code the folder from which `python -m` finds it")
        return tuple(command)
    parts = Path(command[0]).absolute().parts[1:]
    ends = ("/".join(parts[place:]) for place in range(len(parts)))
    found = next((end for end in ends if end in tree.paths), None)
    if found is None:
        raise WireError(f"the script {parts[-1]} is not in the code: give --code the folder that holds it")
    return (str((root or Path()) / found), *command[1:])
