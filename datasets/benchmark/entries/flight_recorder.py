"""PyTorch's Flight Recorder analyser (torch.distributed.flight_recorder, or torchfrtrace) on dumps: python flight_recorder.py FOLDER

It takes files without an extension, as pickles: the dumps are written anew as such. It reports collectives that not all ranks joined,
or that do not match. Of the first report the missing ranks are named, else the culprits; "none" where it reports nothing. It knows
no stacks and no telemetry. Needs: pip install torch
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import pickle
import re
import sys
import tempfile
from pathlib import Path


def analyse(folder: Path) -> str:
    """All that the analyser logs and prints."""
    from torch.distributed.flight_recorder.components.fr_logger import FlightRecorderLogger
    from torch.distributed.flight_recorder.fr_trace import main

    said = io.StringIO()
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(said):
        for path in sorted(folder.iterdir()):
            rank = re.search(r"rank_?(\d+)", path.name) or re.search(r"(\d+)$", path.stem)
            if rank is None:
                continue
            raw = path.read_bytes()
            dump = json.loads(raw) if raw[:1] == b"{" else pickle.loads(raw)
            (Path(scratch) / f"rank_{rank[1]}").write_bytes(pickle.dumps(dump))
        logger = FlightRecorderLogger().logger
        logger.handlers = [logging.StreamHandler(said)]
        main([scratch, "-p", "rank_"])
    return said.getvalue()


def main() -> None:
    folder = Path(sys.argv[1])
    answer: object = "unknown"
    if folder.name.startswith("dumps"):
        text = analyse(folder)
        missing, culprits = re.search(r"missing ranks: \{([\d, ]+)\}", text), re.findall(r"Culprit rank (\d+)", text)
        ranks = [int(rank) for rank in missing[1].split(",")] if missing else [int(rank) for rank in dict.fromkeys(culprits)]
        answer = ranks or "none"
    print(json.dumps({"input": folder.name, "answer": answer}))


if __name__ == "__main__":
    main()
