"""Which variables a request may give a worker. The holder of a launcher's token chooses ranks and addresses, never what code runs.

Some names of the permitted families make a program load code or settings from a place that they name: a plugin or a library of NCCL, a
folder of sources or of compiled kernels, a function to import, options of a compiler (which take plugins), a cache on another host whose
entries are unpickled, and unpickling where it is off. They are known by the shape of their names and count as foreign: the launcher's own
command line must permit them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from minder.model.errors import BadInputError

__all__ = ["check_patterns", "refused_variable"]

_NAMES = frozenset({
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE",
    "ROLE_NAME", "OMP_NUM_THREADS",
})  # fmt: skip
_FAMILIES = ("MASTER_*", "MINDER_*", "TORCH*", "NCCL_*", "GLOO_*")
_LOADED = ("TORCH*", "NCCL_*", "GLOO_*")  # of these, by shape: new versions bring new names
_LOADS_CODE = (
    "*PLUGIN*", "*_PATH", "*_DIR", "*_HOME", "*_LIB", "*_CXX", "*HOOK*", "*AUTOLOAD*", "*REDIS*", "*REMOTE_CACHE*", "NCCL_CONF_FILE",
    "*_FN", "*_MARCH", "*_FLAG", "*_FLAGS", "*NO_WEIGHTS_ONLY*",
)  # fmt: skip
_OURS = ("MINDER_PRELOAD", "MINDER_CODE_DIR")
_NEVER = ("LD_*", "PYTHON*", "PATH")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATTERN = re.compile(r"[A-Za-z0-9_*?]+")


def refused_variable(env: Mapping[str, str], permitted: Sequence[str] = ()) -> str:
    """Why the first variable that is not allowed is refused; "" where all are. permitted: patterns of the launcher's own, such as HF_*.

    >>> refused_variable({"RANK": "0", "NCCL_DEBUG": "INFO"})
    ''
    >>> refused_variable({"LD_PRELOAD": "/tmp/x.so"}, ["*"])
    'LD_PRELOAD is refused: a request never sets LD_*, PYTHON*, PATH'
    """
    for name, value in env.items():
        if _NAME.fullmatch(name) is None or "\0" in value:
            return f"{name[:80]!r} is no variable: letters, digits and _, and a value without a null character"
        if _is_one_of(name, _NEVER):
            return f"{name} is refused: a request never sets {', '.join(_NEVER)}"
        known = name in _NAMES or (_is_one_of(name, _FAMILIES) and not _loads_code(name))
        if not known and not _is_one_of(name, permitted):
            return f"{name} is not among the variables that a request may set: start the launcher with --allow-env {name}, or with --env"
    return ""


def check_patterns(patterns: Sequence[str]) -> None:
    """Raises BadInputError for what is no pattern, or can only name what is always refused."""
    for pattern in patterns:
        if _PATTERN.fullmatch(pattern) is None:
            raise BadInputError(f"--allow-env {pattern!r}: give a name or a pattern, such as HF_*")
        if pattern == "PATH" or pattern.startswith(("LD_", "PYTHON")):
            raise BadInputError(f"--allow-env {pattern}: {', '.join(_NEVER)} are always refused; give the launcher the variable by --env")


def _loads_code(name: str) -> bool:
    return _is_one_of(name, _OURS) or (_is_one_of(name, _LOADED) and _is_one_of(name, _LOADS_CODE))


def _is_one_of(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
