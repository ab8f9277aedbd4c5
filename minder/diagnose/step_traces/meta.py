"""How the traced job was laid out: META.yaml (docs/step-traces.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minder.model.errors import TraceError

__all__ = ["JobLayout", "read_layout"]

_SIZES = ("dp_size", "pp_size", "tp_size", "dsp_size", "vpp_size", "world_size")


@dataclass(frozen=True, slots=True)
class JobLayout:
    """Sizes of the parallel groups. dsp: sequence or context parallelism; vpp: model chunks in each pipeline stage."""

    dp_size: int
    pp_size: int
    tp_size: int = 1
    dsp_size: int = 1
    vpp_size: int = 1
    world_size: int = 0  # 0: whatever the product is

    def __post_init__(self) -> None:
        if self.world_size not in (0, self.dp_size * self.pp_size * self.tp_size * self.dsp_size):
            product = f"dp {self.dp_size} x pp {self.pp_size} x tp {self.tp_size} x dsp {self.dsp_size}"
            raise TraceError(f"world_size is {self.world_size}, but {product} is {self._product()}: correct the sizes")

    def _product(self) -> int:
        return self.dp_size * self.pp_size * self.tp_size * self.dsp_size


def read_layout(path: Path) -> JobLayout:
    """Raises TraceError."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise TraceError(f"job file {path} cannot be read: {why}: give the job's META.yaml with --job") from error
    except yaml.YAMLError as error:
        raise TraceError(f"job file {path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise TraceError(f"job file {path}: give one line `name: number` for each of {', '.join(_SIZES)}")
    sizes = {name: _size(path, name, content[name]) for name in _SIZES if name in content}
    missing = [name for name in ("dp_size", "pp_size") if name not in sizes]
    if missing:
        raise TraceError(f"job file {path} lacks {' and '.join(missing)}: add `{missing[0]}: <number>`")
    try:
        return JobLayout(**sizes)
    except TraceError as error:
        raise TraceError(f"job file {path}: {error}") from None


def _size(path: Path, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TraceError(f"job file {path}: {name} is {value!r}, give a whole number of at least 1")
    return value
