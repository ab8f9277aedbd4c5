"""The gradient guard names the rank with the poisoned gradient, and changes no bit of a healthy run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minder.errors import BadInputError
from minder.worker.gradients import install_gradient_guard

SCRIPT = Path(__file__).parent / "scripts" / "guarded.py"


def _train(tmp_path: Path, mode: str) -> list[dict[str, Any]]:
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    ranks = []
    for rank in range(2):
        env = {**os.environ, "MINDER_HEARTBEAT_FILE": str(tmp_path / f"{mode}-{rank}"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(SCRIPT), str(rank), str(store.port), mode]
        ranks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    try:
        found = [json.loads(process.communicate(timeout=200)[0]) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    return sorted(found, key=lambda item: item["rank"])


@pytest.mark.lab
def test_healthy_run_is_the_same_bit_for_bit_with_the_guard(tmp_path: Path) -> None:
    plain, guarded = _train(tmp_path, "plain"), _train(tmp_path, "guard")
    assert [rank["losses"] for rank in plain] == [rank["losses"] for rank in guarded]
    assert plain[0]["weights"] == guarded[0]["weights"] == guarded[1]["weights"]
    assert guarded[0]["flags"] == []


@pytest.mark.lab
def test_poisoned_rank_raises_and_no_rank_sees_the_sum(tmp_path: Path) -> None:
    healthy, poisoned = _train(tmp_path, "nan")
    assert poisoned["own"] and poisoned["error"] == "NonFiniteGradient" and poisoned["victim"] is False
    assert poisoned["flags"] == [1]
    assert healthy["victim"] is True and healthy["flags"] == []
    assert len(healthy["losses"]) == 3 and healthy["weights"] == poisoned["weights"]


@pytest.mark.lab
def test_record_only_marks_the_rank_and_goes_on(tmp_path: Path) -> None:
    healthy, poisoned = _train(tmp_path, "record")
    assert len(healthy["losses"]) == len(poisoned["losses"]) == 6
    assert poisoned["flags"][0] == 1


def test_other_models_are_refused() -> None:
    with pytest.raises(BadInputError, match="DistributedDataParallel"):
        install_gradient_guard(object())
