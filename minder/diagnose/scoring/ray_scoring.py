"""Jobs whose telemetry is scored by Ray actors: what `minder.app.build` and `minder replay` wire instead of a detector of their own."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from minder.diagnose.detectors.contract import Detector
from minder.diagnose.load_detector import MakeDetector
from minder.diagnose.scoring.bridge import Bridge
from minder.diagnose.scoring.config import ScoringConfig
from minder.diagnose.scoring.remote import Patience, RemoteDetector
from minder.model.errors import MinderError, MissingExtraError
from minder.record.registry.folder import Model

__all__ = ["RayScoring", "open_scoring"]

_WAITS = Patience(180.0, MinderError)


class RayScoring:
    """Raises MissingExtraError where Ray is not installed; that its cluster does not answer is in `trouble`."""

    def __init__(self, address: str, cpus: float, patience: Patience) -> None:
        if importlib.util.find_spec("ray") is None:
            raise MissingExtraError.of("ray", "ray")
        self.bridge = Bridge(address, cpus)
        self._patience = patience
        self.detectors: dict[str, RemoteDetector] = {}  # the newest of each job

    def maker(self, job: str, model: Model) -> MakeDetector:
        def make(stages: Mapping[str, object]) -> Detector:
            self.detectors[job] = RemoteDetector(self.bridge, job, model, stages, self._patience)
            return self.detectors[job]

        return make

    def trouble(self) -> str:
        """Why the newest telemetry is not scored, one line; "" if it is."""
        return next((found.trouble for found in self.detectors.values() if found.trouble), "")

    def close(self) -> None:
        self.bridge.close()


def open_scoring(config: ScoringConfig, *, waits: bool = False) -> RayScoring | None:
    """None: in this process. waits: for a score, up to three minutes, since nothing can be done without it; then MinderError is
    raised. Raises MissingExtraError."""
    if config.engine == "process" or config.ray_address is None:
        return None
    return RayScoring(config.ray_address, config.cpus, _WAITS if waits else Patience(config.answer_s))
