"""NVIDIA's Flight Recorder analyser (fr_attribution of nvidia-resiliency-ext) on dumps: python nvrx_attribution.py FOLDER

Without its language model. It takes files called _dump_<rank>: the dumps are copied under such names. Every rank of its column "Missing
Ranks" is named, as its own output does ("hanging ranks"); "none" where its table is empty. It knows no stacks and no telemetry. Needs:
pip install nvidia-resiliency-ext
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

MODULE = "nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution"


def analyse(folder: Path) -> str:
    """Its table. Raises SystemExit where it fails."""
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted(folder.iterdir()):
            rank = re.search(r"rank_?(\d+)", path.name) or re.search(r"(\d+)$", path.stem)
            if rank is not None:
                raw = path.read_bytes()
                (Path(scratch) / f"_dump_{rank[1]}{'.json' if raw[:1] == b'{' else ''}").write_bytes(raw)
        command = [sys.executable, "-m", MODULE, "--fr-path", scratch, "--emit-stdout"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the analyser failed: {(done.stderr.strip().splitlines() or ['no error'])[-1]}")
    return done.stdout


def main() -> None:
    folder = Path(sys.argv[1])
    answer: object = "unknown"
    if folder.name.startswith("dumps"):
        rows = [line.rsplit("|", 1)[-1] for line in analyse(folder).splitlines() if "|" in line and "Missing Ranks" not in line]
        answer = sorted({int(rank) for row in rows for rank in re.findall(r"\d+", row)}) or "none"
    print(json.dumps({"input": folder.name, "answer": answer}))


if __name__ == "__main__":
    main()
