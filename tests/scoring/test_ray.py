"""Real Ray on two nodes of this machine: the same verdicts as in one process, whoever is killed meanwhile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from minder.app.build import build
from minder.cli import main
from minder.config import JobConfig, MachineConfig
from minder.diagnose.detectors.contract import Detector
from minder.diagnose.scoring.config import ScoringConfig
from minder.diagnose.scoring.ray_scoring import RayScoring
from minder.diagnose.scoring.remote import Patience, RemoteDetector
from minder.model.errors import ScoringLostError
from minder.model.evidence import Scores, Verdict
from minder.model.observation import Observation
from minder.model.telemetry import Window
from minder.offline.evaluation.replay import replay
from minder.record.incidents import Ledger
from minder.record.registry.folder import Model

pytestmark = pytest.mark.server("ray")
WAITS = Patience(120.0)


class Nodes:
    """Two of them, on loopback, without a dashboard."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._size = {"num_cpus": 2, "node_ip_address": "127.0.0.1", "object_store_memory": 80_000_000}
        self._cluster = Cluster(initialize_head=True, head_node_args={**self._size, "include_dashboard": False})
        self.address: str = self._cluster.address
        self.other = self._cluster.add_node(**self._size)

    def end(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        nodes = Nodes()
        try:
            yield nodes
        finally:
            nodes.end()


@pytest.fixture(scope="module")
def recordings(jobs: Sequence[Path]) -> dict[Path, list[Verdict]]:
    """With what one process concludes."""
    return {path: list(replay(path)) for path in jobs}


def raylet_of(detector: RemoteDetector) -> int:
    assert detector.place is not None
    return psutil.Process(detector.place[1]).ppid()


class Disturbed:
    """A detector in whose middle something happens."""

    def __init__(self, inner: RemoteDetector, row: int, happens: Any) -> None:
        self._inner, self._left, self._happens = inner, row, happens

    def score(self, window: Window) -> list[Scores]:
        self._left -= 1
        if self._left == 0:
            self._happens(self._inner)
        return self._inner.score(window)

    def learn(self, window: Window, anomalous: frozenset[str]) -> None:
        self._inner.learn(window, anomalous)

    def state(self) -> dict[str, Any]:
        return self._inner.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self._inner.load(state)


def replay_all(paths: Sequence[Path], scoring: RayScoring, row: int, happens: Any) -> dict[Path, list[Verdict]]:
    def one(path: Path) -> list[Verdict]:
        def make(stages: Mapping[str, object]) -> Detector:
            inner = scoring.maker(path.name, Model("default"))(stages)
            assert isinstance(inner, RemoteDetector)
            return Disturbed(inner, row, happens)

        return list(replay(path, make=make))

    with ThreadPoolExecutor(len(paths)) as pool:
        return dict(zip(paths, pool.map(one, paths), strict=True))


def test_several_jobs_over_two_nodes_are_judged_as_in_one_process(
    nodes: Nodes, recordings: dict[Path, list[Verdict]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert sum(bool(found) for found in recordings.values()) >= 2
    words = [str(path) for path in recordings]
    assert main(["replay", *words]) == 0
    expected = capsys.readouterr().out
    assert main(["replay", *words, "--engine", "ray", "--ray-address", nodes.address]) == 0
    assert capsys.readouterr().out == expected


def test_actors_are_spread_and_one_that_is_killed_goes_on_where_it_was(nodes: Nodes, recordings: dict[Path, list[Verdict]]) -> None:
    scoring, raylets, killed = RayScoring(nodes.address, 0.1, WAITS), set[int](), list[str]()

    def kill_one(detector: RemoteDetector) -> None:
        raylets.add(raylet_of(detector))
        if not killed:
            killed.append("first")
            assert detector.place is not None
            os.kill(detector.place[1], signal.SIGKILL)

    try:
        assert replay_all(list(recordings), scoring, 100, kill_one) == recordings
        assert len(raylets) == 2
        assert sum(detector.restores for detector in scoring.detectors.values()) >= 1  # more where an actor answers too late
    finally:
        scoring.close()


def test_a_live_controller_gets_the_same_scores_and_verdicts(nodes: Nodes, sick_rows: Sequence[Window], tmp_path: Path) -> None:
    machines = tuple(MachineConfig(name=name, agent="http://127.0.0.1:9") for name in "abcdef")
    here = JobConfig(name="x", machines=machines, state_dir=str(tmp_path / "here"))
    scoring = ScoringConfig(engine="ray", ray_address=nodes.address, answer_s=30.0)
    there = here.model_copy(update={"state_dir": str(tmp_path / "there"), "scoring": scoring})
    found = []
    for config in (here, there):
        with closing(build(config, ledger=Ledger(tmp_path / "ledger.db"))) as app:
            stages, told = app.controller._stages, []
            for row in sick_rows[:260]:
                told.append(stages.judge.judge(Observation(float(row.times_T[0]), row))[0])
            newest = stages.scores()
            assert newest is not None and stages.unscored() == ""
            found.append((told, newest.score_M.tobytes()))
            assert app.scoring is None or app.scoring.bridge.pid is not None
    assert any(found[0][0])
    assert found[0] == found[1]


def test_a_node_that_is_killed_takes_nothing_with_it(nodes: Nodes, recordings: dict[Path, list[Verdict]]) -> None:
    scoring, lost = RayScoring(nodes.address, 0.1, WAITS), list[int]()
    other = int(nodes.other.all_processes["raylet"][0].process.pid)

    def kill_its_node(detector: RemoteDetector) -> None:
        if raylet_of(detector) == other and not lost:
            lost.append(other)
            node = psutil.Process(other)
            for process in (node, *node.children(recursive=True)):
                process.kill()

    try:
        assert replay_all(list(recordings), scoring, 100, kill_its_node) == recordings
        assert lost == [other]
        assert sum(detector.restores for detector in scoring.detectors.values()) >= 1
    finally:
        scoring.close()


def test_a_cluster_that_is_lost_is_told_and_ends_nobody_else(nodes: Nodes, sick_rows: Sequence[Window]) -> None:
    scoring = RayScoring(nodes.address, 0.1, WAITS)
    try:
        detector = scoring.maker("job", Model("default"))({})
        assert isinstance(detector, RemoteDetector)
        detector.score(sick_rows[0])
        assert scoring.trouble() == ""
        nodes.end()
        detector._patience = Patience(0.5)
        deadline = time.monotonic() + 60.0
        while not scoring.trouble() and time.monotonic() < deadline:
            with pytest.raises(ScoringLostError):
                detector.score(sick_rows[1])
        assert scoring.trouble()
    finally:
        scoring.close()


@pytest.mark.parametrize("words", [["--engine", "ray"], ["--engine", "ray", "--ray-address", "nowhere"]])
def test_what_is_missing_is_said_in_one_line(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path), *words]) == 2
    assert "10.0.0.7:6379" in capsys.readouterr().err
