"""Ray Train's rule for NCCL RAS, on the launch counts of Flight Recorder dumps: python launch_counts.py FOLDER

Ray Train names the ranks of a communicator whose launch counts stand behind their peers' and do not move. A dump is one moment, so
"do not move" is taken for granted. The count of a rank in a process group is its newest operation there; a rank behind the most that
its peers launched is named. Needs nothing but Python.
"""

from __future__ import annotations

import json
import pickle
import re
import sys
from collections import defaultdict
from pathlib import Path


def read(path: Path) -> dict:
    raw = path.read_bytes()
    return json.loads(raw) if raw[:1] == b"{" else pickle.loads(raw)


def main() -> None:
    folder = Path(sys.argv[1])
    answer: object = "unknown"
    if folder.name.startswith("dumps"):
        counts: dict[str, dict[int, int]] = defaultdict(dict)
        for path in sorted(folder.iterdir()):
            found = re.search(r"rank_?(\d+)", path.name) or re.search(r"(\d+)$", path.stem)
            if found is None:
                continue
            dump, rank = read(path), int(found[1])
            for group in dump.get("pg_config") or {}:
                counts[str(group)].setdefault(rank, 0)
            for entry in dump.get("entries") or []:
                group = str(entry["process_group"][0])
                counts[group][rank] = max(counts[group].get(rank, 0), int(entry.get("collective_seq_id") or 0))
        behind = {rank for ranks in counts.values() for rank, count in ranks.items() if len(ranks) > 1 and count < max(ranks.values())}
        answer = sorted(behind) or "none"
    print(json.dumps({"input": folder.name, "answer": answer}))


if __name__ == "__main__":
    main()
