"""A launcher says that its ranks leave batches out once all of them have asked which, and of each generation anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Start = Callable[..., Any]

PLAIN = {"PYTHONPATH": str(Path(__file__).parent / "scripts" / "no_torch")}
SCRIPT = """
import os, time
import minder
if os.environ.get("MINDER_ASKS") == "1":
    print("left out:", minder.skipped_batches(), flush=True)
time.sleep(600)
"""


@pytest.mark.lab
def test_it_is_offered_once_all_ranks_of_a_generation_have_asked(launch: Start, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    launcher = launch(str(script), options=["--slots", "2"], env=PLAIN).connect()
    launcher.wait_states("waiting", "waiting")

    def offers() -> bool:
        return "skips" in launcher.get("/v1/state")["offers"]

    for generation, asks in ((1, "10"), (2, "11")):
        envs = [{"RANK": str(rank), "MINDER_ASKS": flag, "MINDER_SKIP_BATCHES": "5-6"} for rank, flag in enumerate(asks)]
        assert launcher.post("run", generation, envs).status_code == 200
        launcher.wait_for(lambda workers: launcher.logs().count("left out: (range(5, 7),)") == (1 if generation == 1 else 3))  # noqa: B023
        assert generation == 2 or not offers(), "one of them has not asked"
    launcher.wait_for(lambda workers: offers())
    launcher.post("ended", 2)
    launcher.wait_states("ended", "ended")
    assert offers(), "of ranks that have ended it is still known"
