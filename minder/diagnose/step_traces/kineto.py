"""Operations from torch.profiler's Chrome traces (Kineto): one file per rank, labels by `record_function`.

A label is an operation type and what it belongs to: `forward-compute|step=40|mb=3|mc=0|dp=1|pp=2`. What stays the same may be said once,
in a label `minder|dp=1|pp=2`; steps come from the profiler's own `ProfilerStep#40`. Where a label has a GPU range (`gpu_user_annotation`),
that counts: kernels run later than the calls that launch them.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minder.diagnose.step_traces.schema import ALIASES, KINDS
from minder.model.errors import TraceError

__all__ = ["read_kineto"]

_RANGES = ("user_annotation", "gpu_user_annotation")
_MICRO = 1e-6


def read_kineto(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of the public schema without seq_id. Raises TraceError."""
    content = _load(path)
    events = [
        event for event in content["traceEvents"] if isinstance(event, dict) and event.get("ph") == "X" and event.get("cat") in _RANGES
    ]
    labels = [(event, *_split(str(event.get("name", "")))) for event in events]
    common = {key: value for _, word, fields in labels if word == "minder" for key, value in fields.items()}
    steps = sorted((float(event["ts"]), float(event["dur"]), int(name.split("#")[1])) for event, name, _ in labels if _is_step(name, event))
    rank = int((content.get("distributedInfo") or {}).get("rank", common.get("rank", -1)))
    base_s = float(content.get("baseTimeNanoseconds", 0)) * 1e-9
    on_gpu = {event["name"] for event, word, _ in labels if _known(word) and event["cat"] == "gpu_user_annotation"}
    for event, word, fields in labels:
        if _known(word) and (event["cat"] == "gpu_user_annotation" or event["name"] not in on_gpu):
            own = {**common, **fields}
            step = own.get("step", _step_at(steps, float(event["ts"])))
            if step is None or "dp" not in own or "pp" not in own or rank < 0:
                raise TraceError(f"{path}: label {event['name']!r} lacks step, dp, pp or the rank: add a label `minder|dp=0|pp=0|rank=0`")
            yield _row(event, word, {**own, "step": step, "rank": rank}, base_s)


def _load(path: Path) -> dict[str, Any]:
    try:
        raw = path.read_bytes()
        content = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise TraceError(f"{path} is no readable torch.profiler trace: export it again ({type(error).__name__})") from error
    if not isinstance(content, dict) or not isinstance(content.get("traceEvents"), list):
        raise TraceError(f"{path} has no traceEvents: it is no torch.profiler trace, move it out of the folder")
    return content


def _split(name: str) -> tuple[str, dict[str, int]]:
    word, *parts = name.split("|")
    pairs = [part.split("=", 1) for part in parts if "=" in part]
    return word, {key: int(value) for key, value in pairs if value.lstrip("-").isdigit()}


def _known(word: str) -> bool:
    return ALIASES.get(word, word) in KINDS


def _is_step(name: str, event: dict[str, Any]) -> bool:
    return event["cat"] == "user_annotation" and name.startswith("ProfilerStep#") and name.split("#")[1].isdigit()


def _step_at(steps: list[tuple[float, float, int]], time_us: float) -> int | None:
    """The newest step that had begun: GPU work of a step may end after its range on the CPU."""
    begun = [number for start_us, _, number in steps if start_us <= time_us]
    return begun[-1] if begun else None


def _row(event: dict[str, Any], word: str, fields: dict[str, int], base_s: float) -> dict[str, Any]:
    return {
        "dp_rank": fields["dp"],
        "stage": fields["pp"],
        "rank": fields["rank"],
        "step": fields["step"],
        "optype": word,
        "start_ts": base_s + float(event["ts"]) * _MICRO,
        "duration": float(event["dur"]) * _MICRO,
        "mc": fields.get("mc", 0 if "compute" in word or word in ("params-all-gather", "grads-reduce-scatter") else -1),
        "mb_id": fields.get("mb", -1),
        "gmc": fields.get("gmc", -1),
    }
