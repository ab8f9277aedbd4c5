"""Margins of recordings by models that never saw their families, fitted once and kept: a run that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from minder.offline.training.learned.examples import Sampled, join
from minder.offline.training.learned.fit import PARAMETERS, fit
from minder.offline.training.learned.recording import Recording

__all__ = ["Folds"]

Say = Callable[[str], None]


class Folds:
    """cache: where margins are kept. say: one line of progress for each fit."""

    def __init__(self, recordings: Sequence[Recording], samples: Mapping[str, Sampled], cache: Path, say: Say) -> None:
        self._recordings, self._samples, self._cache, self._say = recordings, samples, cache, say
        digest = hashlib.sha256(repr(sorted(PARAMETERS.items())).encode())
        for path in sorted(Path(__file__).parent.glob("*s.py")):  # examples, and this file: what decides on rows and weights
            digest.update(path.read_bytes())
        for item in recordings:
            digest.update(f"{item.name} {item.features_RF.shape} ".encode())
            digest.update(np.ascontiguousarray(item.features_RF[:64]).tobytes())
        self.data_sha256 = digest.hexdigest()

    def margins(self, name: str, seen: Callable[[Recording], bool], judged: Callable[[Recording], bool]) -> dict[str, np.ndarray]:
        """margin_R of the judged recordings, by name, of a model fitted to the seen ones. name: the fold's, for its file."""
        targets, sources = [item for item in self._recordings if judged(item)], [item for item in self._recordings if seen(item)]
        names = " ".join(item.name for item in [*sources, *targets])
        key = hashlib.sha256(f"{self.data_sha256} {len(sources)} {names}".encode()).hexdigest()[:24]
        path = self._cache / "margins" / f"{key}.npz"
        if path.exists():
            with np.load(path) as data:
                return {item: data[item].astype(np.float64) for item in data.files}
        self._say(f"fit {name}: {len(sources)} recordings, for {len(targets)}")
        fitted = fit(join([self._samples[item.name] for item in sources]))
        found = {item.name: fitted.of(item.features_RF.astype(np.float32)) for item in targets}
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(".part.npz")
        np.savez(scratch, **{item: values.astype(np.float16) for item, values in found.items()})  # type: ignore[arg-type]
        scratch.replace(path)
        return found
