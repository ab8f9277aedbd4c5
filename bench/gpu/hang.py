"""Two ranks on one GPU under NCCL; one is stopped, or spins; the other must come back, free its memory and train on.

NCCL takes the ranks for two machines (NCCL_HOSTID) and joins them by sockets over loopback. Workers are minder's own, driven over their
control channel as the launcher does. While the job hangs, what minder would ask for is asked: RAS, Flight Recorder, stacks.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FAULT_STEP = 6
ROOT = Path(__file__).resolve().parents[2]
RAS_PORTS = (28028, 28029, 28030)
NCCL = {
    "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo",
    "TORCH_FR_BUFFER_SIZE": "200", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "GLOO_SOCKET_IFNAME": "lo", "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}  # fmt: skip


class Rank:
    """One worker process; place: which file it writes its notes to. ras_port: 0 for none."""

    def __init__(self, folder: Path, place: int, device: str, ras_port: int, steps: int, **env: str) -> None:
        self.folder, self.place = folder, place
        ours, theirs = socket.socketpair()
        ours.settimeout(60.0)
        self._socket, self._lines = ours, ours.makefile("rwb", buffering=0)
        self.run_dir = folder / f"run-{place}"
        self.run_dir.mkdir(parents=True)
        own = {
            "MINDER_CONTROL_FD": str(theirs.fileno()), "MINDER_BARRIER": "script", "MINDER_HEARTBEAT_FILE": str(folder / f"page-{place}"),
            "MINDER_LAUNCHER_PID": str(os.getpid()), "MINDER_RUN_DIR": str(self.run_dir), "MINDER_JOB": "gpu-day", "MINDER_DEVICE": device,
            "NCCL_HOSTID": f"machine-{place}", "NCCL_RAS_ENABLE": str(int(ras_port > 0)), "NCCL_RAS_ADDR": f"127.0.0.1:{ras_port or 28040}",
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(folder / f"requested-{place}-"),
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(folder / f"pipe-{place}-"),
        }  # fmt: skip
        self.log = (folder / f"log-{place}").open("wb")
        command = [sys.executable, "-m", "minder.edge.worker.bootstrap", str(Path(__file__).with_name("rank.py")), str(folder)]
        self.process = subprocess.Popen(
            [*command, str(place), str(steps)],
            env=os.environ | NCCL | own | env | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
            pass_fds=(theirs.fileno(),), stdout=self.log, stderr=self.log, start_new_session=True,
        )  # fmt: skip
        theirs.close()

    def tell(self, kind: str, **fields: Any) -> None:
        self._lines.write(json.dumps({"kind": kind, **fields}).encode() + b"\n")

    def hear(self, kind: str) -> dict[str, Any]:
        """The next message of that kind. Raises RuntimeError where the process ended instead."""
        while line := self._lines.readline():
            message = json.loads(line)
            if message["kind"] == kind:
                return dict(message)
        raise RuntimeError(f"rank of place {self.place} ended (status {self.process.poll()}): {self.last_words()}")

    def last_words(self) -> str:
        lines = (self.folder / f"log-{self.place}").read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-12:])[-1500:]

    def notes(self, what: str, generation: int | None = None) -> list[dict[str, Any]]:
        try:
            lines = (self.folder / f"rank-{self.place}.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return [item for item in found if item["what"] == what and generation in (None, item.get("generation"))]

    def assign(self, rank: int, world: int, generation: int, port: int) -> None:
        env = {
            "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": f"gpu-day-{generation}",
            "MINDER_GENERATION": str(generation),
        }  # fmt: skip
        self.tell("assign", generation=generation, env=env)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()


def run_hang(out: Path, device: str, variant: str, evidence: bool) -> list[dict[str, Any]]:
    """variant: stop or spin. Rows of {"measure", "value", "unit", "detail"}. Raises RuntimeError where a part of it does not happen."""
    folder = out / "raw" / f"hang-{variant}"
    shutil.rmtree(folder, ignore_errors=True)
    work = Path("/tmp") / f"minder-gpu-day-{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    for name in ("calm", "job"):
        (work / name).mkdir(parents=True)
    folder.mkdir(parents=True)
    spin = {"SPIN_AT": str(FAULT_STEP + 1)} if variant == "spin" else {}
    steps = 150 if evidence else 24  # the job goes on while a healthy one is looked at
    calm = [Rank(work / "calm", place, device, 0, steps, STEP_S="0") for place in (0, 1)]
    ranks = [Rank(work / "job", place, device, RAS_PORTS[place], steps, **spin) for place in (0, 1, 2)]
    try:
        return _play(folder, calm, ranks, variant, evidence, device)
    finally:
        for rank in (*calm, *ranks):
            rank.kill()
        for path in work.glob("*/log-*"):
            shutil.copy(path, folder / f"{path.parent.name}-{path.name}")
        for path in work.glob("*/rank-*.jsonl"):
            shutil.copy(path, folder / f"{path.parent.name}-{path.name}")
        shutil.rmtree(work, ignore_errors=True)


def _play(folder: Path, calm: list[Rank], ranks: list[Rank], variant: str, evidence: bool, device: str) -> list[dict[str, Any]]:
    stores: list[Any] = []
    for rank in (*calm, *ranks):
        rank.hear("waiting")
    _start(calm, 0, stores)
    for rank in calm:
        rank.hear("done")
    survivor, bad, spare = ranks
    _start([survivor, bad], 0, stores)
    _wait(lambda: len(survivor.notes("step", 0)) >= FAULT_STEP, 60.0, "the job's first steps", survivor)
    rows = _evidence(folder, ranks[:2], "healthy", device) if evidence else []
    if variant == "stop":
        os.kill(bad.process.pid, signal.SIGSTOP)
    seen = _hangs(survivor)
    rows += [_row("steps before the hang", seen, "steps")]
    if evidence:
        time.sleep(3.0)  # RAS keeps asking the peer meanwhile
        rows += _evidence(folder, [survivor, bad], f"while one rank {variant}s", device)
    before = {"nvml": _nvml_used(survivor.process.pid), **_memory(survivor)}
    interrupted_s = time.monotonic()
    survivor.tell("interrupt", generation=0, deadline_s=15.0)
    survivor.hear("waiting")
    waiting_s = time.monotonic()
    left = survivor.notes("left", 0)
    if left:
        rows.append(_row("interrupt to main's exception", left[-1]["time_s"] - interrupted_s, "s", left[-1]["error"]))
    rows.append(_row("interrupt to the barrier, groups destroyed and memory free", waiting_s - interrupted_s, "s"))
    after = {"nvml": _nvml_used(survivor.process.pid)}
    if evidence:
        rows += _ras_rows(folder, "after the abort", device)
    bad.kill()
    assigned_s = time.monotonic()
    _start([survivor, spare], 1, stores)
    for rank in (survivor, spare):
        rank.hear("done")
    entered, grouped, steps = (survivor.notes(what, 1) for what in ("main", "group", "step"))
    rows += [
        _row("the same process went on", int(survivor.process.poll() in (None, 0)), "", f"pid {survivor.process.pid}"),
        _row("assignment to process group", grouped[0]["time_s"] - assigned_s, "s"),
        _row("assignment to first new step", steps[0]["time_s"] - assigned_s, "s", f"step {steps[0]['step']}"),
    ]
    for name, first, second in (
        ("torch allocated", before.get("allocated"), entered[0].get("allocated")),
        ("torch reserved", before.get("reserved"), entered[0].get("reserved")),
        ("NVML used by the process", before["nvml"], after["nvml"]),
    ):
        if first is not None and second is not None:
            rows.append(_row(f"{name}, in the hang and at the barrier", second / 2**20, "MiB", f"{first / 2**20:.0f} MiB in the hang"))
    rows.append(_row("what stays allocated on the GPU", None, "", "; ".join(entered[0].get("leftovers", []))[:1500]))
    return [*rows, _compare(calm[0], survivor)]


def _start(ranks: list[Rank], generation: int, stores: list[Any]) -> None:
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, len(ranks), is_master=True, wait_for_workers=False)
    stores.append(store)  # kept: it serves the generation
    for index, rank in enumerate(ranks):
        rank.assign(index, len(ranks), generation, store.port)


def _wait(reached: Callable[[], bool], limit_s: float, what: str, rank: Rank) -> None:
    end_s = time.monotonic() + limit_s
    while not reached():
        if time.monotonic() > end_s or rank.process.poll() is not None:
            raise RuntimeError(f"{what} did not come within {limit_s:g} s: {rank.last_words()}")
        time.sleep(0.02)


def _hangs(rank: Rank) -> int:
    """Steps that it has taken when no further one came for two seconds."""
    count, since_s = -1, time.monotonic()
    while time.monotonic() - since_s < 2.0:
        now = len(rank.notes("step", 0))
        if now != count:
            count, since_s = now, time.monotonic()
        if rank.notes("finished") or rank.process.poll() is not None:
            raise RuntimeError(f"the job came to its end: nothing hung: {rank.last_words()}")
        time.sleep(0.05)
    return count


def _memory(rank: Rank) -> dict[str, int]:
    last = rank.notes("step", 0)[-1]
    return {key: last[key] for key in ("allocated", "reserved") if key in last}


def _nvml_used(pid: int) -> int | None:
    """Bytes of GPU memory of one process, as NVML says; None where it does not."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        found = {item.pid: item.usedGpuMemory for item in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        return found.get(pid)
    except Exception:  # noqa: BLE001 - a measurement: NVML may be missing in any way
        return None


def _compare(calm: Rank, survivor: Rank) -> dict[str, Any]:
    wanted = {item["step"]: item["loss"] for item in calm.notes("step")}
    found = [(item["step"], item["loss"]) for item in survivor.notes("step")]
    wrong = [step for step, loss in found if wanted.get(step) != loss]
    whole = {step for step, _ in found} == set(wanted) != set()
    detail = (
        f"of {len(found)} losses, bit for bit" + (f"; first at step {wrong[0]}" if wrong else "") + ("" if whole else "; steps missing")
    )
    return _row("losses that differ from an undisturbed run", len(wrong) if whole else -1, "", detail)


# What minder asks for


def _evidence(folder: Path, ranks: list[Rank], when: str, device: str) -> list[dict[str, Any]]:
    rows = _ras_rows(folder, when, device)
    for part in (_flight_rows, _stack_rows):
        try:
            rows += part(folder, ranks, when)
        except Exception as error:  # noqa: BLE001 - the next part is independent, and what failed is a row
            rows.append(_row(f"{part.__name__.strip('_')} {when}", None, "", f"failed: {type(error).__name__}: {error}"))
    return rows


def ask_ras(port: int, commands: bytes, limit_s: float = 2.5) -> str:
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0) as connection:
            connection.settimeout(limit_s)
            connection.sendall(commands)
            content = b""
            while block := connection.recv(65536):
                content += block
    except OSError as error:
        return f"!{type(error).__name__}: {error}" + (f" after {content.decode(errors='replace')}" if "content" in locals() else "")
    return content.decode(errors="replace")


def _ras_rows(folder: Path, when: str, device: str) -> list[dict[str, Any]]:
    from minder.edge.signals.nccl_ras import read_ras

    if device != "cuda":
        return []
    rows = []
    for name, commands in (
        ("text", b"verbose status\n"), ("json", b"SET FORMAT json\nVERBOSE STATUS\n")
    ):  # fmt: skip
        for port in RAS_PORTS[:2]:
            began_s = time.monotonic()
            text = ask_ras(port, commands)
            (folder / f"ras-{when}-{name}-{port}.txt".replace(" ", "-").replace("'", "")).write_text(text)
            report = None if text.startswith("!") else read_ras(text)
            ours = " by ask_ras" if name == "text" else ""
            said = "not read: " + text.strip().replace("\n", " | ")[:160] if report is None else _said(report)
            rows.append(_row(f"RAS {name} of port {port} {when}{ours}", time.monotonic() - began_s, "s", said))
    from minder.edge.agent.ras import ask_ras as agents_question

    began_s = time.monotonic()
    found = asyncio.run(agents_question(3.0))
    rows.append(_row(f"RAS as the agent asks it {when}", time.monotonic() - began_s, "s", "no answer" if found is None else _said(found)))
    return rows


def _said(report: Any) -> str:
    named = {side: [item.pid for item in getattr(report, side)] for side in ("silent", "behind", "ahead") if getattr(report, side)}
    return f"{', '.join(report.problems) or 'OK'} {named or ''} timeouts {report.timeouts}".strip()


def _flight_rows(folder: Path, ranks: list[Rank], when: str) -> list[dict[str, Any]]:
    """The dumps that minder's workers keep, judged by `minder collectives`; and those of torch's own pipe."""
    began_s = time.monotonic()
    name = when.replace(" ", "-")
    target = folder / f"flight-{name}"
    target.mkdir()
    for rank in ranks:
        (rank.run_dir / "dumps").mkdir(exist_ok=True)
        (rank.run_dir / "dumps" / "ask").touch()
    for pipe in ranks[0].folder.glob("pipe-*"):
        try:
            handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(handle, b"1")
            os.close(handle)
        except OSError:
            continue
    time.sleep(1.5)
    ages = []
    for index, rank in enumerate(ranks):
        path = rank.run_dir / "dumps" / f"pid-{rank.process.pid}"
        if not path.exists():
            ages.append(f"rank {index}: none")
            continue
        header, _, data = path.read_bytes().partition(b"\n")
        (target / f"rank_{index}.pickle").write_bytes(data)
        ages.append(f"rank {index}: {len(data)} bytes, {time.time() - json.loads(header)['time_s']:.1f} s old")
    command = [sys.executable, "-m", "minder", "collectives", str(target), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    said = _short(done.stdout) if done.stdout.strip() else done.stderr.strip()[-200:]
    (folder / f"collectives-{name}.json").write_text(done.stdout)
    asked = sorted(path.name for path in ranks[0].folder.glob("requested-*"))
    return [
        _row(f"Flight Recorder dumps {when}", time.monotonic() - began_s, "s", "; ".join(ages)),
        _row(f"`minder collectives` {when}", done.returncode, "exit", said),
        _row(f"files of torch's own pipe {when}", len(asked), "", ", ".join(asked)[:120]),
    ]


def _short(text: str) -> str:
    document = json.loads(text)
    return json.dumps({key: document[key] for key in ("suspect_ranks", "order", "missing_ranks", "cause") if key in document})[:400]


def _stack_rows(folder: Path, ranks: list[Rank], when: str) -> list[dict[str, Any]]:
    from minder.diagnose.stacks.blame import analyse
    from minder.diagnose.stacks.reader import capture_from_agents
    from minder.edge.agent.stacks import dump_stacks
    from minder.edge.exporters.jobs import JobProcess
    from minder.edge.exporters.procfs import read_stat

    rows = []
    for native in (False, True):
        answers, spent = [], []
        for index, rank in enumerate(ranks):
            stat = read_stat(rank.process.pid)
            began_s = time.monotonic()
            entries = asyncio.run(dump_stacks([JobProcess(rank.process.pid, "gpu-day", index)], began_s + 9.0, native))
            spent.append(f"{time.monotonic() - began_s:.2f} s")
            state = [{"pid": rank.process.pid, "rank": index, "state": "" if stat is None else stat.state}]
            answers.append({"machine": f"m{index}", "time_s": time.time(), "stacks": entries, "processes": state})
        kind = "with compiled frames" if native else "plain"
        (folder / f"stacks-{when}-{kind}.json".replace(" ", "-")).write_text(json.dumps(answers))
        finding = analyse(capture_from_agents(answers), stands=True)
        named = [f"{item.machine}: {item.reason}" for item in finding.suspects]
        failed = [str(entry["data"])[:80] for answer in answers for entry in answer["stacks"] if entry["format"] == "error"]
        tops = [f"{group.kind} {' < '.join(group.frames[:3])}" for group in finding.groups]
        detail = f"{finding.because[:160]} | named {named} | {tops} | {failed}"
        rows.append(_row(f"stacks {kind} {when}", None, "", f"{', '.join(spent)} | {detail}"))
    return rows


def _row(measure: str, value: Any, unit: str, detail: str = "") -> dict[str, Any]:
    return {"measure": measure, "value": value, "unit": unit, "detail": detail}


def pack(folder: Path) -> str:
    """All files of a folder as one JSON document; bytes in base64."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            try:
                found[str(path.relative_to(folder))] = content.decode()
            except UnicodeDecodeError:
                found[str(path.relative_to(folder))] = {"base64": base64.b64encode(content).decode()}
    return json.dumps(found)
