"""A probe runs as a process of its own, and whatever goes wrong with it is a result that is no pass."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from minder.edge.probes import runner
from minder.edge.probes.contract import PROBES, Probe, Program, find_program, find_programs
from minder.edge.probes.runner import run_probe
from minder.edge.probes.starved import starved_s
from minder.model.errors import BadInputError
from minder.model.probes import ProbeResult

GOOD = {
    "probe": "gemm",
    "version": 2,
    "state": "measured",
    "facts": {"cpu": "x"},
    "measures": [{"name": "rate", "value": 5, "unit": "1/s"}],
}


def said(document: Any) -> str:
    return f"print({json.dumps(document)!r})"


def played(folder: Path, code: str, limit_s: float = 20.0, **options: Any) -> ProbeResult:
    """The result of a probe whose program is this code."""
    path = folder / "gemm.py"
    path.write_text(code)
    return asyncio.run(run_probe(Program(Probe("gemm", 2, "a test", limit_s), path), options))


def test_a_document_becomes_a_result_with_its_units_and_its_programs_hash(tmp_path: Path) -> None:
    found = played(tmp_path, said(GOOD))
    assert (found.state, found.measures[0].value, found.measures[0].unit, found.facts) == ("measured", 5.0, "1/s", {"cpu": "x"})
    assert len(found.sha256) == 64 and found.seconds > 0 and abs(found.started_s - time.time()) < 60


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise RuntimeError('CUDA error: ECC')", "it ended with status 1: RuntimeError: CUDA error: ECC"),
        ("import os; os.kill(os.getpid(), 9)", "it was ended by SIGKILL"),
        ("import os; os.abort()", "it was ended by SIGABRT"),
        ("print('all is well')", "it printed no document of a probe"),
        ("", "it printed no document of a probe"),
        ("print('[1, 2]')", "it printed no document of a probe"),
        (said({**GOOD, "probe": "disk"}), "it says that it is disk version 2"),
        (said({**GOOD, "version": 1}), "it says that it is gemm version 1"),
        (said({**GOOD, "state": "pass"}), 'it says "pass", which is no state of a probe'),
        (said({**GOOD, "measures": []}), "it measured nothing"),
        (said({**GOOD, "measures": [{"name": "rate", "value": float("nan"), "unit": "1/s"}]}), "its rate is nan"),
        (said({**GOOD, "measures": [{"name": "rate", "value": "fast", "unit": "1/s"}]}), "it printed no document of a probe"),
        (f"{said(GOOD)}; raise SystemExit(3)", "it ended with status 3"),
        ("print('x' * 2_000_000)", "it printed more than 1 MiB"),
    ],
)
def test_a_probe_that_goes_wrong_is_not_judged_with_the_reason(tmp_path: Path, code: str, why: str) -> None:
    found = played(tmp_path, code)
    assert (found.state, found.measures, found.probe, found.version) == ("not_judged", (), "gemm", 2)
    assert found.detail.startswith(why) and "\n" not in found.detail


def test_a_probe_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    code = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
time.sleep(600)
"""
    found = played(tmp_path, code, limit_s=1.0)
    assert found.state == "not_judged" and found.detail.startswith("it did not end within 1 s") and "killed" in found.detail
    pid = int((tmp_path / "pid").read_text())
    assert not alive(pid)


def test_what_a_probe_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    code = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
{said(GOOD)}
"""
    assert played(tmp_path, code).state == "measured"
    assert not alive(int((tmp_path / "pid").read_text()))


def alive(pid: int) -> bool:
    """For up to five seconds: it may be dead and not reaped yet."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        time.sleep(0.05)
    return True


def test_a_probe_knows_no_rank_and_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MINDER_TOKEN", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    code = f"import os\n{said(GOOD)} if not {{'RANK', 'WORLD_SIZE', 'MINDER_TOKEN', 'OMP_NUM_THREADS'}} & set(os.environ) else exit(9)"
    assert played(tmp_path, code).state == "measured"


FRAMED = """
import os, sys
from minder.edge.probes.contract import Finding, Probe
from minder.edge.probes.program import run
from minder.model.probes import Measurement

def measure(options):
    print("a library says hello")
    os.system("echo a child says hello")
    return Finding("measured", measures=(Measurement("rate", float(options["x"]), "1/s", "higher"),), facts={"nice": str(os.nice(0))})

run(Probe("gemm", 2, "a test", 20.0), measure)
"""


def test_the_frame_keeps_standard_output_for_the_document_and_passes_options(tmp_path: Path) -> None:
    found = played(tmp_path, FRAMED, x=7)
    assert (found.state, found.measures[0].value) == ("measured", 7.0), found.detail


def test_beside_a_job_a_probe_runs_at_low_priority(tmp_path: Path) -> None:
    path = tmp_path / "gemm.py"
    path.write_text(FRAMED)
    found = asyncio.run(run_probe(Program(Probe("gemm", 2, "a test", 20.0), path), {"x": 1}, nice=10))
    assert int(found.facts["nice"]) == min(19, os.nice(0) + 10), found.detail


def test_an_order_cannot_lengthen_a_probes_limit(tmp_path: Path) -> None:
    path = tmp_path / "gemm.py"
    path.write_text("import time; time.sleep(60)")
    found = asyncio.run(run_probe(Program(Probe("gemm", 2, "a test", 0.3), path), {}, limit_s=500.0))
    assert "within 0.3 s" in found.detail


@pytest.mark.parametrize(
    ("starved", "most_s", "ends"),
    [
        pytest.param(20.0, 30.0, True, id="it waited for a processor"),
        pytest.param(0.0, 30.0, False, id="it had one all the time"),
        pytest.param(20.0, 0.1, False, id="an order's limit is kept"),
    ],
)
def test_a_limit_is_longer_by_what_a_busy_machine_took(monkeypatch: pytest.MonkeyPatch, starved: float, most_s: float, ends: bool) -> None:
    monkeypatch.setattr(runner, "starved_s", lambda pid: starved)
    ended = asyncio.run(runner.run_child(["sleep", "0.3" if ends else "60"], 0.1, most_s=most_s))
    assert (ended.status, ended.added_s) == ((0, 0.0) if ends else (None, 0.0))


def test_what_waits_for_a_processor_is_counted_over_all_that_a_probe_started(tmp_path: Path) -> None:
    for pid, threads, children in ((7, {7: 1.5, 8: 4.0}, "9"), (9, {9: 6.25}, ""), (10, {10: 99.0}, "")):
        for thread, seconds in threads.items():
            task = tmp_path / str(pid) / "task" / str(thread)
            task.mkdir(parents=True)
            (task / "schedstat").write_text(f"1000 {int(seconds * 1e9)} 3\n")
            (task / "children").write_text(children if thread == pid else "")
    assert starved_s(7, tmp_path) == 6.25
    assert starved_s(11, tmp_path) == 0.0


def test_every_probe_of_the_package_says_what_it_is() -> None:
    programs = find_programs()
    assert tuple(programs) == PROBES
    for name, program in programs.items():
        probe = program.probe
        assert (probe.name, program.path.stem) == (name, name)
        assert probe.version >= 1 and 0 < probe.limit_s <= 600 and probe.says and probe.measures and probe.source
    assert len({program.sha256 for program in programs.values()}) == len(PROBES)


@pytest.mark.parametrize("name", ["fan", "../disk", "contract", "os", ""])
def test_what_is_no_probe_is_refused_by_name(name: str) -> None:
    with pytest.raises(BadInputError, match="this minder has links, clock"):
        find_program(name)
