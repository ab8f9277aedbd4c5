"""Which version of the job's code a worker runs: a hash of its script's files, the same on every machine that has them."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["code_version"]

_MOST_FILES, _MOST_BYTES = 500, 20 << 20
_FOREIGN = ("site-packages", ".venv", "venv", "node_modules", "__pycache__", ".git")


def code_version(
    command: Sequence[str],
    environment: Mapping[str, str],
    update: int = 0,
    changed: Mapping[str, str] | None = None,
    root: Path | None = None,
) -> str:
    """Twelve characters; $MINDER_CODE_VERSION of the job's environment where the site knows better; "" where nothing can be read.

    update, changed, root: the number of the update that runs, the variables that it sets, and the folder of its files, which is named by
    their hash. They make another version, with the same files too.

    The script's arguments count, and the Python files in its folder and below (500 of them, 20 MiB). An editor's save between two starts
    is another version; libraries that are installed elsewhere are not looked at.
    """
    known = environment.get("MINDER_CODE_VERSION")
    if known:
        return f"{known[:50]}+update{update}" if update else known[:64]
    folder = _folder(command) if root is None else root
    if folder is None:
        return ""
    variables = [f"{name}={value}" for name, value in sorted((changed or {}).items())]
    digest = hashlib.sha256("\0".join([Path(command[0]).name, *command[1:], *variables]).encode())
    if root is not None:
        digest.update(root.name.encode())
        return digest.hexdigest()[:12]
    read = 0
    for path in _sources(folder):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        read += len(content)
        if read > _MOST_BYTES:
            break
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()[:12] if read else ""


def _folder(command: Sequence[str]) -> Path | None:
    """The script's folder, or that of the module's outermost package."""
    if not command:
        return None
    if command[0] != "-m":
        return Path(command[0]).absolute().parent
    try:
        spec = importlib.util.find_spec(command[1].partition(".")[0]) if len(command) > 1 else None
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec is not None and spec.origin and Path(spec.origin).is_file() else None


def _sources(folder: Path) -> list[Path]:
    """A script in a home or root folder stands for itself: what lies beside it there is no part of it."""
    if folder in (Path.home(), Path("/"), Path("/tmp")):
        return sorted(folder.glob("*.py"))[:_MOST_FILES]
    found = (path for path in folder.rglob("*.py") if not any(part in _FOREIGN for part in path.relative_to(folder).parts))
    return sorted(found)[:_MOST_FILES]
