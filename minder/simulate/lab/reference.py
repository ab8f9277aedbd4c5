"""The undisturbed run of the same seed, and the comparison with it: equal means bit for bit, at every step.

The reference is a real run of the training script with as many processes, without pacing, checkpoints and faults. Its ranks
are forked from one process that has loaded torch once. It is kept in a folder named by everything that it depends on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from minder.model.children import end_with_parent
from minder.model.errors import LabError

__all__ = ["Comparison", "compare_losses", "reference_losses"]

_SOURCES = ("train.py", "model.py", "corpus.py", "plain.py", "reference.py")
_DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """steps: how many were compared. first_difference: the step where the runs part (None: nowhere); detail says how."""

    equal: bool
    first_difference: int | None
    steps: int
    detail: str = ""


def reference_losses(
    seed: int, steps: int, world_size: int, cache_dir: str | os.PathLike[str], *, deadline_s: float = _DEADLINE_S, alone: bool = False
) -> Path:
    """The folder of the undisturbed run (losses.jsonl, final.json); computed at the first call, within `deadline_s` seconds. alone: no live
    job runs beside it, so it takes its full share of the processors. Raises LabError."""
    device = os.environ.get("MINDER_LAB_DEVICE", "cpu")
    key = hashlib.sha256(json.dumps([seed, steps, world_size, version("torch"), platform.machine(), device, _sources_sha256()]).encode())
    folder = Path(cache_dir) / f"reference-{key.hexdigest()[:16]}"
    if (folder / "final.json").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="reference-draft-", dir=folder.parent))
    try:
        arguments = ["--seed", str(seed), "--steps", str(steps), "--ranks", str(world_size), *(["--alone"] if alone else [])]
        _run(draft, arguments, deadline_s)
        try:
            draft.rename(folder)
        except OSError:
            if not (folder / "final.json").exists():  # otherwise another process computed the same meanwhile
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def compare_losses(run_dir: str | os.PathLike[str], reference: str | os.PathLike[str], *, whole: bool = True) -> Comparison:
    """Compare every loss that any generation of a run wrote, and the final parameters, with the reference.

    A step that several generations took must have the same loss in all of them; no step may be missing. whole: False for a run that was
    killed: it has no parameters at its end, and no steps after its last one.
    """
    expected = {step: loss for step, _, loss in _losses(Path(reference))}
    if not expected:
        raise LabError(f"{reference} holds no losses: remove it, so that it is computed again")
    seen: set[int] = set()
    for step, generation, loss in sorted(_losses(Path(run_dir))):
        if loss != expected.get(step):
            detail = f"step {step}, generation {generation}: loss {loss} instead of {expected.get(step, 'no such step')}"
            return Comparison(False, step, len(seen), detail)
        seen.add(step)
    missing = sorted(step for step in set(expected) - seen if whole or step < max(seen, default=0))
    if missing:
        return Comparison(False, missing[0], len(seen), f"step {missing[0]} was never taken")
    if not whole:
        return Comparison(True, None, len(seen), f"{len(seen)} losses agree bit for bit")
    found, wanted = _final(Path(run_dir)), _final(Path(reference))
    if not found.get("ranks_agree") or found.get("parameters_sha256") != wanted.get("parameters_sha256"):
        return Comparison(False, max(seen), len(seen), "the losses agree, the parameters at the end do not")
    return Comparison(True, None, len(seen), f"{len(seen)} losses and the final parameters agree bit for bit")


def _losses(folder: Path) -> Iterator[tuple[int, int, str]]:
    try:
        text = (folder / "losses.jsonl").read_text()
    except FileNotFoundError:
        return
    for line in text[: text.rfind("\n") + 1].splitlines():  # a run that was killed may have left half a line
        record = json.loads(line)
        yield record["step"], record["generation"], record["loss"]


def _final(folder: Path) -> dict[str, Any]:
    try:
        final: dict[str, Any] = json.loads((folder / "final.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return final


def _sources_sha256() -> str:
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()


def _run(folder: Path, arguments: list[str], deadline_s: float) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MINDER_", "TORCHELASTIC_"))}
    environment = kept | {"MINDER_LAB_DEVICE": os.environ.get("MINDER_LAB_DEVICE", "cpu"), "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    environment |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    command = [sys.executable, "-m", "minder.simulate.lab.reference", "--output", str(folder), *arguments]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise LabError(f"the undisturbed run did not end within {deadline_s:.0f} s") from error
    if done.returncode != 0:
        tail = " / ".join(done.stderr.strip().splitlines()[-3:])
        raise LabError(f"the undisturbed run failed with status {done.returncode}: {tail}")


def _main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--steps", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--alone", action="store_true")
    own = parser.parse_args()
    os.nice(0 if own.alone else 10)  # it may run beside a live job
    import torch

    from minder.simulate.lab import train

    torch.set_num_threads(1)
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # loads what torch loads late: once, before the fork
    options = ["--output", own.output, "--seed", own.seed, "--steps", own.steps, "--step-seconds", "0", "--checkpoint-every", "0"]
    with tempfile.TemporaryDirectory() as meeting:
        options += ["--plain", "--collective-timeout", "300", "--init-method", f"file://{meeting}/store"]
        ranks = [_fork(rank, own.ranks, lambda: train.main(train.parse(options))) for rank in range(own.ranks)]
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
    return max(map(abs, statuses))


def _fork(rank: int, world_size: int, run: Any) -> int:
    pid = os.fork()
    if pid:
        return pid
    end_with_parent()  # a run that is given up leaves no rank behind
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size))
    status = 1
    try:
        run()
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.exit(_main())
