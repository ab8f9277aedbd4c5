"""Who holds a job up, by its Flight Recorder dumps: accuracy and size.

    python bench/collectives.py [--seeds 20] [--torch] [--ranks 1024 --entries 2000]

Accuracy: random layouts of 8 to 64 ranks (TP x DP x PP, 1F1B), one fault each (tests/collectives/dump_faults.py); "ranks" counts a
case as right if exactly the ranks at fault are named. --torch judges the same dumps, and the real ones, with PyTorch's own analyser
(torchfrtrace): "first" if its first report of missing or mismatched ranks names a culprit and no innocent, "anywhere" if all of its
reports together name every culprit (whoever else they name). It reports what differs, group by group, and does not claim to find the
root of it; nor does it look for late ranks.
--ranks: processor time and peak memory of reading and analysing.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import logging
import pickle
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

TESTS = Path(__file__).resolve().parent.parent / "tests" / "collectives"
sys.path.insert(0, str(TESTS))

import dump_faults  # noqa: E402
from dump_faults import KINDS, make  # noqa: E402
from dump_synthesis import Layout  # noqa: E402

from minder.diagnose.flight_recorder.analyse import Analysis, analyse  # noqa: E402
from minder.diagnose.flight_recorder.dumpfile import parse_dump  # noqa: E402
from minder.diagnose.flight_recorder.folder import collect  # noqa: E402
from minder.diagnose.flight_recorder.pickles import load_plain_pickle  # noqa: E402
from minder.diagnose.flight_recorder.records import Signatures  # noqa: E402

Documents = Mapping[int, dict[str, Any]]


def minder_says(documents: Documents) -> Analysis:
    signatures = Signatures()
    return analyse(collect([parse_dump(item, rank, signatures) for rank, item in documents.items()], signatures))


def torch_says(documents: Documents) -> tuple[set[int], set[int]] | str:
    """Ranks that torchfrtrace's first report names, and those that all of its reports name; or the exception that it dies of."""
    if "tabulate" not in sys.modules and importlib.util.find_spec("tabulate") is None:  # only its tables of batches need it
        sys.modules["tabulate"] = ModuleType("tabulate")
        sys.modules["tabulate"].tabulate = lambda *_, **__: ""  # type: ignore[attr-defined]
    from torch.distributed.flight_recorder.components.builder import build_db
    from torch.distributed.flight_recorder.components.config_manager import JobConfig

    details = {
        str(rank): {**pickle.loads(pickle.dumps(item)), "rank": rank, "host_name": f"host{rank}"} for rank, item in documents.items()
    }
    arguments = JobConfig().parse_args([".", "--allow-incomplete-ranks"])
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            database = build_db(details, arguments, str(next(iter(documents.values()))["version"]))
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return type(error).__name__
    finally:
        logging.disable(logging.NOTSET)
    reports = [set(one.missing_ranks or ()) | set(one.mismatch_collectives or ()) for one in database.collectives]
    named = [report for report in reports if report]
    return (named[0] if named else set()), set().union(*named)


def accuracy(seeds: int, with_torch: bool) -> None:
    print(f"{'kind':<28} {'ranks':>8} {'cause':>8} {'confidence':>12}" + (" torchfrtrace: first, anywhere, died" if with_torch else ""))
    right = wrong = 0
    for kind in KINDS:
        ranks = causes = theirs = anywhere = died = 0
        confidences = []
        for seed in range(seeds):
            case = make(kind, seed, "nccl" if with_torch else None)
            analysis = minder_says(case.documents)
            hit = {culprit.rank for culprit in analysis.culprits} == case.truth
            ranks, causes = ranks + hit, causes + (hit and analysis.cause in case.causes)
            confidences.append(analysis.confidence)
            wrong += not hit and analysis.confidence >= 0.9
            right += hit
            if with_torch:
                said = torch_says(case.documents)
                died += isinstance(said, str)
                if not isinstance(said, str):
                    theirs += said[0] <= case.truth and bool(said[0]) == bool(case.truth)
                    anywhere += case.truth <= said[1] if case.truth else not said[1]
        span = f"{min(confidences):.2f}-{max(confidences):.2f}"
        extra = f" {theirs:>10}/{seeds} {anywhere:>3}/{seeds} {died:>3}/{seeds}" if with_torch else ""
        print(f"{kind:<28} {ranks:>5}/{seeds} {causes:>5}/{seeds} {span:>12}{extra}", flush=True)
    print(f"all: {right}/{seeds * len(KINDS)}; wrong with confidence 0.9 or more: {wrong}")


def real_cases() -> None:
    print(f"{'real case':<28} {'truth':>10} {'minder':>10} torchfrtrace")
    for folder, truth in (("nccl/gpu_error_2nd", {9, 14}), ("nccl/lock_gil_1st", {9, 14}), ("gloo/sleep", {2}), ("gloo/type", {1})):
        files = {int(path.stem.rpartition("_")[2]): path for path in (TESTS / "data" / folder).iterdir()}
        documents = {rank: load_plain_pickle(path.read_bytes()) for rank, path in sorted(files.items())}
        ours = sorted(culprit.rank for culprit in minder_says(documents).culprits)
        said = torch_says(documents)
        theirs = said if isinstance(said, str) else [sorted(part) for part in said]
        print(f"{folder:<28} {sorted(truth)!s:>10} {ours!s:>10} {theirs}", flush=True)


def large(ranks: int, entries: int) -> None:
    """A world group, tensor groups of 8; rank 7 stops one collective early. Dumps are made one by one and not counted."""
    signatures, dumps, read_s, size = Signatures(), [], 0.0, 0
    for rank in range(ranks):
        data = _large_dump(rank, ranks, entries - (rank == 7))
        size += len(data)
        read_s += _timed(lambda data=data, rank=rank: dumps.append(parse_dump(load_plain_pickle(data), rank, signatures)))
    found: list[Analysis] = []
    analyse_s = _timed(lambda: found.append(analyse(collect(dumps, signatures))))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    named = [culprit.rank for culprit in found[0].culprits]
    print(f"{ranks} ranks x {entries} entries, {size / 2**20:.0f} MiB: read {read_s:.1f} s, analyse {analyse_s:.1f} s (process time), "
          f"peak {peak:.0f} MiB, named {named}")  # fmt: skip


def _large_dump(rank: int, ranks: int, entries: int) -> bytes:
    names = ("0", "default_pg"), (str(1 + rank // 8), "TENSOR")
    config = {
        names[0][0]: {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))},
        names[1][0]: {"name": names[1][0], "desc": "TENSOR", "ranks": str(list(range(rank // 8 * 8, rank // 8 * 8 + 8)))},
    }
    frames = [{"name": f"function_{k}", "filename": "train.py", "line": k} for k in range(10)]
    shape, dtype, found = [[4096, 8192]], ["BFloat16"], []
    for k in range(entries):
        group, sequence = (0, k // 10) if k % 10 == 9 else (1, k - k // 10)
        created = 1_760_000_000_000_000_000 + k * 1_000_000
        done = k < 2 * (entries // 2) - 10
        found.append(
            {"record_id": 5000 + k, "pg_id": group, "process_group": names[group], "collective_seq_id": sequence + 1, "p2p_seq_id": 0,
             "op_id": k, "profiling_name": "nccl:all_reduce", "time_created_ns": created, "input_sizes": shape, "input_dtypes": dtype,
             "output_sizes": shape, "output_dtypes": dtype, "state": "completed" if done else "scheduled", "frames": frames,
             "time_discovered_started_ns": None, "time_discovered_completed_ns": created + 500_000 if done else None,
             "retired": done, "timeout_ms": 600000, "is_p2p": False}
        )  # fmt: skip
    return pickle.dumps({"version": "2.9", "pg_config": config, "pg_status": {}, "nccl_version": "2.27.3", "entries": found}, protocol=2)


def _timed(work: Callable[[], None]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--no-messages", action="store_true", help="only jobs without pipelines: collectives alone")
    parser.add_argument("--ranks", type=int, default=0)
    parser.add_argument("--entries", type=int, default=2000)
    arguments = parser.parse_args()
    if arguments.ranks:
        large(arguments.ranks, arguments.entries)
        return
    if arguments.no_messages:
        dump_faults.layout_of = lambda rng: Layout(rng.choice((2, 4, 8)), rng.choice((4, 8)), 1)
    if arguments.torch:
        real_cases()
    accuracy(arguments.seeds, arguments.torch)


if __name__ == "__main__":
    main()
