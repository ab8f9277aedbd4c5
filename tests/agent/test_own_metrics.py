"""What an agent says of itself, also before (or without) any sample."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

from minder import __version__
from minder.edge.agent.options import AgentOptions
from minder.edge.agent.service import Service
from minder.ingest.sources.exposition import parse_exposition

DOCUMENTED = (Path(__file__).resolve().parents[2] / "docs/metrics.md").read_text(encoding="utf-8")


def read(service: Service) -> dict[str, float]:
    request: Any = None
    answer = asyncio.run(service.metrics(request))
    found = parse_exposition(bytes(answer.body).decode())
    return {name + "".join(f" {key}={value}" for key, value in labels.items()): number for name, labels, number in found}


def test_an_agent_whose_sampling_hangs_still_says_so(tmp_path: Path) -> None:
    service = Service(AgentOptions(machine="m0", run_dir=tmp_path, gpu="off", interval_s=0.1))
    before = read(service)
    assert before[f"minder_agent_info version={__version__}"] == 1.0 and before["minder_agent_captures_total"] == 0.0
    assert "minder_agent_sample_age_seconds" not in before and "minder_cpu_usage_ratio" not in before
    service.sampler._latest = (time.monotonic() - 60.0, service.sampler.sample())
    found = read(service)
    assert found["minder_agent_sample_age_seconds"] >= 60.0 and "minder_memory_usage_ratio" not in found
    own = {name.split()[0] for name in found}
    assert [name for name in sorted(own) if not re.search(rf"`{name}`", DOCUMENTED)] == []
