"""A host of detectors in this process that can be killed, slow, or gone."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from minder.diagnose.scoring.host import DetectorHost
from minder.model.errors import ScoringLostError
from minder.model.telemetry import Window
from minder.simulate.worlds.families import classic


class Hosts:
    """Link (minder/diagnose/scoring/remote.py). held: answers that are not given yet; gone: why no host answers."""

    def __init__(self) -> None:
        self.jobs: dict[str, DetectorHost] = {}
        self.gone = ""
        self.is_slow = False
        self.held: list[tuple[Future[bytes], bytes]] = []
        self.orders = 0

    def kill(self) -> None:
        self.jobs.clear()

    def answer(self) -> None:
        self.is_slow = False
        for future, answer in self.held:
            future.set_result(answer)
        self.held.clear()

    def send(self, job: str, payload: bytes) -> Future[bytes]:
        self.orders += 1
        future: Future[bytes] = Future()
        if self.gone:
            future.set_exception(ScoringLostError(self.gone))
            return future
        answer = self.jobs.setdefault(job, DetectorHost()).advance(payload)
        if self.is_slow:
            self.held.append((future, answer))
        else:
            future.set_result(answer)
        return future


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


@pytest.fixture(scope="session")
def sick_rows() -> list[Window]:
    """400 s of six machines at 1 Hz; after 200 s the first does a third of what it did, and the others wait for it."""
    rng = np.random.default_rng(4)
    metrics = ("gpu_power_draw_watts", "gpu_sm_activity_ratio", "rdma_throughput_bytes_per_second")
    values_TMK = np.array([500.0, 0.6, 1e11]) * np.exp(rng.normal(0, 0.02, (400, 6, 3)))
    values_TMK[200:, 0] *= 0.3
    values_TMK[205:, 1:] *= 0.6
    present_TM = np.ones((1, 6), dtype=bool)
    return [Window(np.array([1.7e9 + t]), tuple("abcdef"), metrics, values_TMK[t : t + 1], present_TM) for t in range(400)]


@pytest.fixture(scope="session")
def jobs(load_file: Callable[[Path], ModuleType], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Recordings of four jobs of different sizes, three of them with a machine that hangs."""
    tests = Path(__file__).parents[1]
    writer = load_file(tests / "evaluation" / "conftest.py")
    folder, found = tmp_path_factory.mktemp("jobs"), []
    for seed, (fault, machines) in enumerate((("hang", 6), (None, 4), ("hang", 10), ("hang", 5))):
        recipe = classic.Recipe(seed=seed + 21, fault=fault, machines=machines, pipeline=1, interval_s=5.0, duration_s=900, onset_s=330.0)
        found.append(writer.write_recording(folder / f"job{seed}", classic.generate(recipe)))
    return found
