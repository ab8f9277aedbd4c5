"""One world as training sees it: features of every bin, what the default detector said, and the truth. Cached by the code that made it.

Legend: B bins, R rows (candidates of all bins), F features.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import minder.diagnose.detectors as detectors
import minder.simulate.worlds as worlds
from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.detectors.learned.describe import FEATURES
from minder.diagnose.detectors.learned.features import FeatureStream
from minder.diagnose.detectors.traits import with_devices
from minder.model.telemetry import Window
from minder.offline.worlds.shown import is_shown
from minder.offline.worlds.trace import Said, trace_detector
from minder.offline.worlds.window import peer_groups, window_of
from minder.simulate.worlds.catalogue import load_family
from minder.simulate.worlds.world import NO_FAULT, World

__all__ = ["REDRAWN", "Recording", "made", "read_recording"]

REDRAWN = 1_000_000  # added to the seed of a world whose fault no metric shows, three times at most
_FORMAT = 2  # of the cached files: count it up when they change


@dataclass(frozen=True, slots=True)
class Recording:
    """family, seed: where it comes from. machine_R: place of each row's machine; first_B: where each bin's rows begin (B + 1 numbers).
    culprits: right answers, one or two, or a group. shown: whether the telemetry shows them. duration_s: from first to last row."""

    family: str
    seed: int
    machines: tuple[str, ...]
    interval_s: float
    time_B: np.ndarray
    dt_B: np.ndarray
    first_B: np.ndarray
    machine_R: np.ndarray
    features_RF: np.ndarray
    said: tuple[Said, ...]
    culprits: tuple[str, ...]
    group: bool
    fault: str | None
    onset_s: float | None
    grey: bool
    cause: str | None
    nuisances: tuple[str, ...]
    shown: bool
    duration_s: float

    @property
    def name(self) -> str:
        return f"{self.family}:{self.seed}"

    @property
    def is_hidden(self) -> bool:
        """Whether it has a fault that no metric shows."""
        return self.fault is not None and not self.shown

    @property
    def is_redrawn(self) -> bool:
        """Whether it stands for one whose fault no metric shows."""
        return self.seed >= REDRAWN


def read_recording(family: str, seed: int, cache: Path) -> Recording:
    """From the cache, or made and written there (a part that its code has not changed is kept)."""
    features = cache / "features" / _hash(family, "learned") / f"{family}-{seed}.npz"
    said = cache / "default" / _hash(family, "") / f"{family}-{seed}.json"
    if not features.exists() or not said.exists():
        world = load_family(family).draw(seed)
        window = window_of(world)
        if not said.exists():
            spoken = trace_detector(DefaultDetector(peer_groups(world)), window)
            _write(said, json.dumps([item.record() for item in spoken]).encode())
        if not features.exists():
            _write_features(features, world, window)
    return _read(features, [Said.of(record) for record in json.loads(said.read_text())])


def made(families: dict[str, range], cache: Path) -> Iterator[Recording]:
    """All of these seeds, family by family in turn, so that a part of them is a fair sample; after a hidden one what it is redrawn as."""
    longest = max((len(seeds) for seeds in families.values()), default=0)
    for i in range(longest):
        for family, seeds in families.items():
            if i < len(seeds):
                found = read_recording(family, seeds[i], cache)
                yield found
                yield from _redrawn(found, cache)


def _redrawn(found: Recording, cache: Path) -> Iterator[Recording]:
    """A world with a fault that its telemetry shows, instead of one without; none where three seeds have none."""
    if found.is_hidden:
        others = (read_recording(found.family, found.seed + k * REDRAWN, cache) for k in (1, 2, 3))
        yield from itertools.islice((other for other in others if other.fault is not None and other.shown), 1)


def _write_features(path: Path, world: World, window: Window) -> None:
    stream, (names, values_TKM) = FeatureStream(peer_groups(world)), with_devices(window)
    bins = []
    for t, time_s in enumerate(window.times_T.tolist()):
        found = stream.add(time_s, window.machines, names, values_TKM[t], window.present_TM[t])
        if found is not None:
            bins.append(found)
    truth, twin = world.truth, None
    culprits = truth.culprits or truth.group
    if truth.fault is not None and truth.onset_s is not None:
        twin = window_of(load_family(world.family).draw(world.seed, fault=NO_FAULT))
    shown = twin is not None and is_shown(window, twin, culprits, float(truth.onset_s or 0.0), truth.end_s)
    about = {
        "family": world.family, "seed": world.seed, "machines": window.machines, "interval_s": world.interval_s, "culprits": culprits,
        "group": bool(truth.group), "fault": truth.fault, "onset_s": truth.onset_s, "grey": bool(truth.grey), "cause": truth.cause,
        "nuisances": truth.nuisances, "shown": shown, "duration_s": float(np.ptp(window.times_T)) if len(window.times_T) else 0.0,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".part.npz")
    np.savez(
        scratch,
        about=np.array(json.dumps(about)),
        time_B=np.array([item.time_s for item in bins]),
        dt_B=np.array([item.dt_s for item in bins]),
        first_B=np.cumsum([0, *(len(item.candidates_C) for item in bins)]),
        machine_R=np.concatenate([item.candidates_C for item in bins] or [np.zeros(0)]).astype(np.int32),
        features_RF=np.concatenate([item.features_CF for item in bins] or [np.zeros((0, len(FEATURES)))]).astype(np.float16),
    )
    scratch.replace(path)


def _read(path: Path, said: list[Said]) -> Recording:
    with np.load(path) as data:
        about: dict[str, Any] = json.loads(str(data["about"]))
        arrays = {name: data[name] for name in ("time_B", "dt_B", "first_B", "machine_R", "features_RF")}
    for name in ("machines", "culprits", "nuisances"):
        about[name] = tuple(about[name])
    return Recording(**about, **arrays, said=tuple(said))


@functools.cache
def _hash(family: str, room: str) -> str:
    """Of the code that decides: the family, and the detector's modules of the room ("": the default's, beside `learned`)."""
    root = Path(str(detectors.__file__)).parent
    here, there = Path(__file__).parents[2] / "worlds", Path(str(worlds.__file__)).parent / "families"
    names = ("describe", "features", "kinds", "ordered")
    files = [root / "state.py", *(root / room / f"{name}.py" for name in names)] if room else sorted(root.glob("*.py"))
    files += [*sorted((there / family).rglob("*.py")), *there.glob(f"{family}.py")]
    files += [here / "window.py", here / ("shown.py" if room else "trace.py")]
    digest = hashlib.sha256(f"{_FORMAT}".encode())
    for path in files:
        digest.update(_code(path).encode())
    return digest.hexdigest()[:16]


def _code(path: Path) -> str:
    """What a module does: neither comments nor layout nor docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [item for item in body if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".part")
    scratch.write_bytes(data)
    scratch.replace(path)
