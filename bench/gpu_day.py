"""Everything of minder that needs a GPU, in one command of about four minutes on one device.

    python bench/gpu_day.py --out FOLDER [--steps nvml,hang] [--deadline 240]

Steps are independent: each is a process with a time limit, and one that fails or has no device is a line with its reason. FOLDER holds
results.jsonl and table.md, written as the steps end, and raw.tgz: RAS answers, Flight Recorder dumps, stacks, logs. --rehearse runs the
steps on the processor, with gloo: it checks this program and measures nothing. docs/gpu.md says what was found.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "gpu"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

Rows = list[dict[str, Any]]


def _hang(variant: str, evidence: bool) -> Callable[[Path, str], Rows]:
    def rows(out: Path, device: str) -> Rows:
        from hang import run_hang

        return [{**row, "measure": f"{variant}: {row['measure']}"} for row in run_hang(out, device, variant, evidence)]

    return rows


def _nvml(out: Path, device: str) -> Rows:
    from readings import nvml_rows

    return nvml_rows(out, device)


def _save(out: Path, device: str) -> Rows:
    from training import save_rows

    return save_rows(out, device, 24.0 if device == "cuda" else 2.0)


def _overhead(out: Path, device: str) -> Rows:
    from training import overhead_rows

    return overhead_rows(out, device)


def _probes(out: Path, device: str) -> Rows:
    from readings import probe_rows

    return probe_rows(out, device)


def _loop(out: Path, device: str) -> Rows:
    from readings import loop_rows

    return loop_rows(out, device, "hang")


# What runs, in this order, and within how many seconds.
STEPS: dict[str, tuple[Callable[[Path, str], Rows], float]] = {
    "hang": (_hang("stop", True), 80.0),
    "save": (_save, 75.0),
    "loop": (_loop, 80.0),
    "spin": (_hang("spin", False), 40.0),
    "overhead": (_overhead, 40.0),
    "probes": (_probes, 60.0),
    "nvml": (_nvml, 50.0),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-day"), help="folder for results.jsonl, table.md and raw.tgz")
    parser.add_argument("--steps", default=",".join(STEPS), help="comma separated")
    parser.add_argument("--deadline", type=float, default=240.0, help="seconds; a step that would begin later is left out")
    parser.add_argument("--rehearse", action="store_true", help="on the processor")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    out = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    device = "cpu" if options.rehearse else "cuda"
    if options.child:
        print("\n" + json.dumps(STEPS[options.child][0](out, device)), flush=True)
        return 0
    names = [name for name in options.steps.replace(" ", "").split(",") if name]
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        print(f"--steps {','.join(unknown)}: use some of {', '.join(STEPS)}", file=sys.stderr)
        return 2
    return _run(out, names, device, time.monotonic() + options.deadline)


def _run(out: Path, names: list[str], device: str, end_s: float) -> int:
    _look_for_py_spy()
    absent = "" if device == "cpu" else _absent()
    results = [] if absent else [{"step": "device", **row} for row in _device_rows(device)]
    for name in names:
        if absent:
            rows = [{"measure": name, "value": None, "unit": "", "detail": absent}]
        elif time.monotonic() > end_s:
            rows = [{"measure": name, "value": None, "unit": "", "detail": "left out: the time is over"}]
        else:
            rows = _step(out, name, device, min(STEPS[name][1], max(10.0, end_s - time.monotonic())))
        results += [{"step": name, **row} for row in rows]
        _write(out, results)
        print(_table(results, name), flush=True)
    shutil.rmtree(out / "raw", ignore_errors=True)
    return 0


def _absent() -> str:
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return "" if torch.cuda.is_available() else "no CUDA device"


def _device_rows(device: str) -> Rows:
    import torch

    facts = {"python": platform.python_version(), "torch": torch.__version__}
    if device == "cuda":
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        facts |= {"gpu": torch.cuda.get_device_name(0), "cuda": str(torch.version.cuda), "nccl": nccl}
    return [{"measure": name, "value": None, "unit": "", "detail": value} for name, value in facts.items()]


def _step(out: Path, name: str, device: str, limit_s: float) -> Rows:
    """The rows of one step's process; its whole session is ended at the limit."""
    began_s = time.monotonic()
    command = [sys.executable, __file__, "--out", str(out), "--child", name, *(["--rehearse"] if device == "cpu" else [])]
    log = out / f".{name}.log"
    with log.open("wb") as errors:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        try:
            output, _ = child.communicate(timeout=limit_s)
            why = f"ended with status {child.returncode}"
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output, why = child.communicate()[0], f"did not end within {limit_s:.0f} s"
    spent = {"measure": "seconds of this step", "value": time.monotonic() - began_s, "unit": "s", "detail": ""}
    last = (output or "").strip().rpartition("\n")[2]
    try:
        rows: Rows = json.loads(last)
    except ValueError:
        words = " / ".join(log.read_text(errors="replace").strip().splitlines()[-6:])
        rows = [{"measure": name, "value": None, "unit": "", "detail": f"failed: {why}: {words[-900:]}"}]
    (out / "raw").mkdir(exist_ok=True)
    shutil.move(log, out / "raw" / f"{name}.log")
    return [*rows, spent]


def _write(out: Path, results: Rows) -> None:
    (out / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in results))
    (out / "table.md").write_text(_table(results))
    if (out / "raw").exists():
        with tarfile.open(out / "raw.tgz", "w:gz") as archive:
            archive.add(out / "raw", "raw", filter=_small)


def _small(item: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return item if item.isdir() or (item.isfile() and item.size < 1 << 20) else None


def _table(results: Rows, step: str = "") -> str:
    lines = [] if step else ["| step | measure | value | unit | detail |", "|---|---|---|---|---|"]
    for row in results:
        if step in ("", row["step"]):
            value = row["value"]
            text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
            lines.append(f"| {row['step']} | {row['measure']} | {text} | {row['unit']} | {str(row['detail']).replace('|', '/')} |")
    return "\n".join(lines) + "\n"


def _look_for_py_spy() -> None:
    """Beside a package that was installed with `pip --target`."""
    for folder in sys.path:
        if (Path(folder) / "bin" / "py-spy").exists():
            program = Path(folder) / "bin" / "py-spy"
            program.chmod(0o755)
            os.environ["PATH"] = f"{program.parent}:{os.environ['PATH']}"
            return


if __name__ == "__main__":
    sys.exit(main())
