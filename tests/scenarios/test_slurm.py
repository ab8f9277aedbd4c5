"""The whole loop where Slurm owns the machines: the lab's machines are real Slurm nodes, the job a real Slurm job, the fault real."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from minder.act.actuators.slurm.jobs import SlurmJob
from minder.act.actuators.slurm.nodes import SlurmNodes
from minder.act.recovery.rendezvous import RendezvousHost
from minder.edge.cache.folder import RecordFolder
from minder.edge.cache.members import kept_steps
from minder.model.history import LedgerEvent
from minder.record.incidents import Ledger, kinds
from minder.simulate.demo.stage import training_script
from minder.simulate.lab.lab import Lab
from minder.simulate.lab.machine import LabMachine
from minder.simulate.lab.slurm import LocalSlurm
from minder.wire.tokens import write_token

pytestmark = [
    pytest.mark.lab,
    pytest.mark.root,
    pytest.mark.server("slurmctld", "slurmd", "munged"),
    pytest.mark.timeout(280),
]

AGENT_PORT, LAUNCHER_PORT, STEPS = 9401, 9402, 60
SEED = int(os.environ.get("MINDER_MEMORY_SEED", "0"))  # which node is lost, and when


class Site:
    """Nodes with an agent each, a job on some of them, and a controller outside of it."""

    def __init__(self, folder: Path, stack: ExitStack, machines: int = 3, standbys: int = 1) -> None:
        self.folder = folder
        self._stack = stack
        self.lab = stack.enter_context(Lab(machines, standbys, root_dir=folder / "machines", state_dir=folder / "lab"))
        if self.lab.mode != "namespaces":
            pytest.skip("needs network namespaces: a Slurm node is a machine of its own")
        self.slurm = stack.enter_context(LocalSlurm(folder / "slurm", lab=self.lab))
        self.nodes = SlurmNodes(self.slurm.commands(), time.time)
        self.token = folder / "token"
        self.ledger = str(folder / "state" / "ledger.db")
        self._controllers: list[subprocess.Popen[Any]] = []
        write_token(self.token)
        (folder / "nodes").mkdir()
        for machine in self.lab.all_machines:
            (folder / "nodes" / machine.name).write_text(
                f"ADDRESS={machine.address}\nDATA={machine.data_address}\nRUN={machine.run_dir}\nMEMORY={machine.memory_dir}\n"
            )

    def name(self, index: int) -> str:
        return self.lab.all_machines[index].name

    def start_agents(self, *flags: str, first: tuple[str, ...] = ()) -> None:
        for index, machine in enumerate(self.lab.all_machines):
            self.lab.start_agent(machine, self.token, AGENT_PORT, ["--gpu", "off", *flags, *(first if index == 0 else ())])

    def submit(self, count: int, step: str, beside: str = "") -> SlurmJob:
        """A job whose one task per node is the shell text `step`, with that node's own variables. beside: the same, as another step."""
        task = self.folder / "task.sh"
        task.write_text(f"#!/bin/bash\n. {self.folder}/nodes/$SLURMD_NODENAME\nexport GLOO_SOCKET_IFNAME=data0 OMP_NUM_THREADS=1\n{step}\n")
        if beside:
            (self.folder / "beside.sh").write_text(f"#!/bin/bash\n. {self.folder}/nodes/$SLURMD_NODENAME\n{beside}\n")
        own_step = f"srun --overlap --no-kill --kill-on-bad-exit=0 --wait=0 bash {self.folder}/beside.sh &\n" if beside else ""
        batch = self.folder / "batch.sh"
        first = f'. {self.folder}/nodes/$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\nexport MASTER_ADDR=$DATA'
        batch.write_text(f"#!/bin/bash\n{first}\n{own_step}srun --overlap --no-kill --kill-on-bad-exit=0 --wait=0 bash {task}\n")
        words = ["sbatch", "--parsable", "--no-kill", "--requeue", "--exclusive", "--open-mode=append", f"-N{count}", f"-n{count}"]
        told = subprocess.run(
            [*words, "-o", str(self.folder / "job.log"), str(batch)],
            env=self.slurm.environment, cwd=self.folder, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        return SlurmJob(int(told), self.slurm.commands(), self.nodes)

    def write_config(self, engine: str, launchers: bool) -> Path:
        lines = ['name = "big"', f'state_dir = "{self.folder}/state"', f'agent_token_file = "{self.token}"']
        lines += [f'checkpoint_dir = "{self.folder}/checkpoints"', f'rendezvous_address = "{self.lab.controller_address}"']
        lines += [f'launcher_token_file = "{self.token}"', "[policy]", "breaker_share = 0.5", "cooldown_s = 4.0"]
        lines += ["[engine]", 'kind = "slurm"', f'conf = "{self.slurm.conf}"', "deadline_s = 20", engine]
        for machine in self.lab.all_machines:
            lines += ["[[machines]]", f'name = "{machine.name}"', f'agent = "http://{machine.address}:{AGENT_PORT}"']
            lines += [f'launcher = "http://{machine.address}:{LAUNCHER_PORT}"'] if launchers else []
        path = self.folder / "job.toml"
        path.write_text("\n".join(lines))
        return path

    def minder(self, *words: str, **environment: str) -> subprocess.Popen[Any]:
        with (self.folder / "controller.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "minder", *words], stdout=subprocess.PIPE, stderr=log, cwd=self.folder,
                env={**os.environ, **environment},
            )  # fmt: skip
        self._stack.callback(_end, process)
        self._controllers.append(process)
        return process

    def lead_from_two_places(self, ledger: str, config: Path) -> tuple[subprocess.Popen[Any], subprocess.Popen[Any]]:
        """A controller that leads, and one with a state folder of its own that waits, both on one ledger."""
        self.ledger, found = ledger, []
        for place, began in (("a", lambda: self.events(kinds.JOB_REGISTERED)), ("b", lambda: "is led by process" in self.said())):
            state = self.folder / f"state-{place}"
            other = config.with_name(f"{place}.toml")
            other.write_text(config.read_text().replace(f'"{self.folder}/state"', f'"{state}"'))
            self._stack.callback(RendezvousHost(state, self.lab.controller_address).stop)
            found.append(self.minder("run", "--config", str(other), "--act", MINDER_LEDGER=ledger))
            self.until(began, f"controller {place}", 120.0)
        return found[0], found[1]

    def lose(self, controller: subprocess.Popen[Any]) -> None:
        """It and the store that the generation met at: the machine of both is gone. Another leads."""
        before = len(self.events(kinds.CONTROLLER_STARTED))
        self._controllers.remove(controller)
        controller.kill()
        RendezvousHost(self.folder / "state-a", self.lab.controller_address).stop()
        self.until(lambda: len(self.events(kinds.CONTROLLER_STARTED)) > before, "another leader")

    def said(self) -> str:
        path = self.folder / "controller.log"
        return path.read_text() if path.exists() else ""

    def events(self, *wanted: str) -> list[LedgerEvent]:
        if "://" not in self.ledger and not Path(self.ledger).exists():
            return []
        with Ledger(self.ledger) as ledger:
            return ledger.events(job="big", kinds=wanted)

    def outcomes(self) -> dict[str, str]:
        """What became of every operation, by the end of its name: "drain", "release", "requeue" or "evict"."""
        results = self.events(kinds.RESULT)
        return {[*str(event.operation_id).split("/"), "evict"][1]: str(event.payload["outcome"]) for event in results}

    def status(self, place: str = "state") -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder / place / "status.json").read_text()))
        except (OSError, ValueError):
            return {}

    def until(self, look: Callable[[], Any], what: str, limit_s: float = 90.0) -> Any:
        end_s = time.monotonic() + limit_s
        while not (found := look()):
            told = [(event.kind, str(event.payload)[:300]) for event in self.events() if event.kind != kinds.EVIDENCE][-12:]
            logs = {name: _tail(self.folder / name) for name in ("controller.log", "job.log")}
            living = all(process.poll() in (None, 0) for process in self._controllers)
            assert living and time.monotonic() < end_s, f"{what} did not come within {limit_s:.0f} s; ledger {told}; {logs}"
            time.sleep(0.1)
        return found

    def stop_worker(self, machine: LabMachine, word: str) -> psutil.Process:
        """SIGSTOP the process on this machine whose command has `word` in it."""
        found = [process for process in map(psutil.Process, machine.pids()) if word in " ".join(process.cmdline())]
        assert len(found) == 1, found
        found[0].send_signal(signal.SIGSTOP)
        return found[0]

    def step(self) -> int:
        """The newest that a controller has seen."""
        return max((int(self.status(path.parent.name).get("step") or 0) for path in self.folder.glob("state*/status.json")), default=0)

    def kill_cache(self, machine: LabMachine) -> None:
        """SIGKILL the process that holds this machine's checkpoints."""
        words = ["cache", "--job", "big", "--machine", machine.name]
        (found,) = [process for process in psutil.process_iter(["cmdline"]) if " ".join(words) in " ".join(process.info["cmdline"] or ())]
        found.kill()


def _tail(path: Path) -> str:
    return path.read_text()[-1500:] if path.exists() else ""


def _end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.delenv("MINDER_LEDGER", raising=False)
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


def test_a_node_hangs_and_the_spare_of_the_allocation_takes_over(site: Site, tmp_path: Path) -> None:
    from minder.simulate.lab.reference import compare_losses, reference_losses

    site.start_agents()
    launch = f'"{sys.executable}" -m minder launch --job big --machine $SLURMD_NODENAME --listen $ADDRESS:{LAUNCHER_PORT}'
    script = f'"{training_script()}" --output {site.folder}/train --steps {STEPS} --step-seconds 0.2 --no-sync'
    job = site.submit(4, f"exec {launch} --token-file {site.token} --run-dir $RUN --slots 1 -- {script}")
    site.until(lambda: job.show().state == "RUNNING", "the Slurm job")
    config = site.write_config(f"job = {job.id}\nmachines = 3\nrelease = true", launchers=True)
    controller = site.minder("run", "--config", str(config), "--act")
    site.until(lambda: (site.status().get("step") or 0) >= 12, "the 12th step", 120.0)
    by_hand = [f"NodeName={site.name(0)}", "State=DRAIN", "Reason=memory test at noon, Jo"]  # the job on it goes on
    site.slurm.commands().call(["scontrol", "update", *by_hand])
    stopped_s = time.time()
    bad = site.lab.all_machines[1]
    worker = site.stop_worker(bad, "minder.edge.worker")
    site.until(lambda: site.outcomes().get("release"), "the release")
    assert controller.wait(120) == 0, _tail(site.folder / "controller.log")
    print(f"finished {time.time() - stopped_s:.1f} s after the fault: {site.outcomes()}")
    assert [event.payload["machine"] for event in site.events(kinds.BARRED)] == [bad.name]
    assert (site.outcomes()["drain"], site.outcomes()["release"], site.outcomes()["evict"]) == ("done", "done", "done")
    (intent,) = [event for event in site.events(kinds.INTENT) if event.payload["action"] == "evict"]
    assert site.nodes.ours() == {bad.name: intent.operation_id}
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    comparison = compare_losses(site.folder / "train", reference_losses(0, STEPS, 3, tmp_path / "undisturbed"))
    assert comparison.equal, comparison.detail
    assert site.nodes.show(site.name(0)).reason == "memory test at noon, Jo"
    back = [sys.executable, "-m", "minder", "machine", "return"]
    done = subprocess.run([*back, bad.name, "--config", str(config)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not site.nodes.show(bad.name).is_held, done
    refused = subprocess.run([*back, site.name(0), "--config", str(config)], capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "not ours to undo" in refused.stderr and site.nodes.show(site.name(0)).is_drained


LOSSES = (
    "a node",
    "a tensor-parallel group",
    "a cache, then another node",
    "a node, and a bit of another flips",
    "a node, and its backup's cache in the recovery",
    pytest.param("controller and store host, then a node", marks=pytest.mark.server("postgresql")),
)


@pytest.mark.release
@pytest.mark.timeout(500)
@pytest.mark.parametrize("what", LOSSES)
def test_nodes_are_lost_with_their_memory_and_no_folder_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, request: pytest.FixtureRequest
) -> None:
    """The caches are a step of their own, which no end of a launcher touches. Other seeds: MINDER_MEMORY_SEED."""
    monkeypatch.delenv("MINDER_LEDGER", raising=False)
    with ExitStack() as stack:
        site = Site(tmp_path, stack, *((4, 2) if what == "a tensor-parallel group" else (3, 1)))
        ledger = request.getfixturevalue("postgres").new_database() if what.startswith("controller") else ""
        _lose_memory(site, random.Random(SEED), what, ledger)


def _committed(folder: Path) -> int:
    kept = kept_steps(folder)
    return kept[0].step if kept else -1


def _held(site: Site) -> dict[str, tuple[int, list[str]]]:
    """Of each cache that is left: the newest committed step, and its records."""
    folders = {machine.name: machine.memory_dir for machine in site.lab.all_machines if machine.memory_dir.exists()}
    return {name: (_committed(folder), sorted(path.stem for path in folder.glob("*.head"))) for name, folder in folders.items()}


def _newest_whole(site: Site, ranks: int) -> int:
    """The newest step of which an undamaged record of each rank is left, wherever it lies; -1 for none."""
    found: dict[int, set[int]] = {}
    for machine in site.lab.all_machines:
        if machine.memory_dir.exists():
            folder = RecordFolder(machine.memory_dir)
            for name in folder.records:
                with suppress(OSError):  # one that goes just now
                    found.setdefault(name.step, set()).update(() if folder.is_damaged(name) else (name.rank,))
    return max((step for step, whole in found.items() if len(whole) == ranks), default=-1)


def _taken(site: Site) -> list[int]:
    """The steps whose loss was written down, in that order."""
    path = site.folder / "train" / "losses.jsonl"
    return [json.loads(line)["step"] for line in path.read_text().splitlines() if line.endswith("}")]


def _lose_memory(site: Site, chance: random.Random, what: str, ledger: str) -> None:
    from minder.simulate.lab.reference import compare_losses, reference_losses

    site.start_agents()
    nodes, ranks, is_group = site.lab.all_machines, len(site.lab.machines), what == "a tensor-parallel group"
    steps = STEPS * (3 if ledger else 2 if what.startswith("a cache") else 1)  # what else has to start meanwhile has time to
    minder = f'"{sys.executable}" -m minder'
    cache = f"exec {minder} cache --job big --machine $SLURMD_NODENAME --listen $DATA:0 --folder $MEMORY --max-bytes 64M"
    launch = f"exec {minder} launch --job big --machine $SLURMD_NODENAME --listen $ADDRESS:{LAUNCHER_PORT} --cache-bytes 64M"
    script = f'"{training_script()}" --output {site.folder}/train --steps {steps} --step-seconds 0.2 --memory'
    flags = f"--cache-folder $MEMORY --token-file {site.token} --run-dir $RUN --slots 1"
    job = site.submit(len(nodes), f"sleep 1; {launch} {flags} -- {script}", f"{cache} --token-file {site.token}")
    site.until(lambda: job.show().state == "RUNNING", "the Slurm job")
    config = site.write_config(f"job = {job.id}\nmachines = {ranks}", launchers=True)
    lines = [line for line in config.read_text().splitlines() if not line.startswith("checkpoint_dir")]
    layout = ["[parallelism]", "tensor = 2", "data = 2"] if is_group else []
    config.write_text("\n".join(['checkpoints = "memory"', *lines, *layout]))
    if ledger:
        first, controller = site.lead_from_two_places(ledger, config)
    else:
        controller = site.minder("run", "--config", str(config), "--act")
    last = chance.randrange(8, 25)
    site.until(lambda: site.step() >= last, f"step {last}", 120.0)
    # the batch script itself runs on the first one
    index = chance.choice((1, 2))
    lost = nodes[2:4] if is_group else [nodes[index]]
    if what.startswith("a cache"):
        other = nodes[3 - index]
        site.kill_cache(other)
        at_step = site.step()
        site.until(lambda: _committed(other.memory_dir) > at_step, "a step that its next cache has")
    if ledger:
        site.lose(first)
    for node in lost:
        node.kill_all()
        assert not node.memory_dir.exists()
    holder = (index + 1) % ranks  # of the lost one's backup; its own lies on the third
    whole = _newest_whole(site, ranks)
    if "flips" in what:
        _settle(site)
        before = _newest_whole(site, ranks)
        _flip(nodes[holder], holder, chance)
        whole = _newest_whole(site, ranks)
        assert whole == before, "each record has a copy that the flip does not reach"
    last = _taken(site)[-1]
    print(f"lost {[node.name for node in lost]}, newest whole step {whole} of {last}, left {_held(site)}")
    if "recovery" in what:
        standby = nodes[ranks].memory_dir
        site.until(lambda: (standby / "members.json").exists(), "a rank of the standby at its cache")
        site.kill_cache(nodes[holder])
    assert controller.wait(200) == 0, _tail(site.folder / "controller.log")
    assert {event.payload["machine"] for event in site.events(kinds.BARRED)} == {node.name for node in lost}
    assert not (site.folder / "checkpoints").exists()
    comparison = compare_losses(site.folder / "train", reference_losses(0, steps, ranks, site.folder / "undisturbed"))
    assert comparison.equal, comparison.detail
    if "flips" in what:
        assert "is passed over: chunk" in (site.folder / "job.log").read_text() + _logs_of(nodes[holder])
    taken = _taken(site)
    again = [step for step, before in zip(taken[1:], taken, strict=False) if step <= before]
    assert min(again, default=steps) > whole, "a step that was whole and left was passed over"
    print(f"taken again: {len(taken) - len(set(taken))}")
    # Where a save takes longer than these short steps, as on a busy host, two of them are in flight; the third is the step just taken.
    assert last - whole <= 3 and len(taken) - len(set(taken)) <= 3, "more than what was in flight was taken twice"


def _settle(site: Site) -> None:
    """Until no record is on its way any more to a cache, while the ranks wait for the machine that is gone."""
    before: dict[str, tuple[int, list[str]]] = {}
    while (now := _held(site)) != before:
        before = now
        time.sleep(0.5)


def _flip(machine: LabMachine, rank: int, chance: random.Random) -> None:
    """A bit of each record of this machine's own rank."""
    for body in sorted(machine.memory_dir.glob(f"*-rank-{rank:05d}.body")):
        with body.open("r+b") as file:
            at = chance.randrange(body.stat().st_size)
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 1 << chance.randrange(8)]))


def _logs_of(machine: LabMachine) -> str:
    return "".join(path.read_text(errors="replace") for path in machine.run_dir.rglob("*.log"))


def test_a_watched_node_hangs_and_its_job_is_requeued_without_it(site: Site) -> None:
    port = 29555
    site.start_agents("--discover", first=("--log", str(site.folder / "job.log")))
    ranks = f"export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=0 MASTER_PORT={port} PYTHONUNBUFFERED=1"
    script = f'"{sys.executable}" "{training_script()}" --plain --output {site.folder}/train --steps 100000 --step-seconds 0.2'
    job = site.submit(3, f"{ranks}\nexec {script} --checkpoint-dir {site.folder}/checkpoints")
    site.until(lambda: job.show().state == "RUNNING", "the Slurm job")
    assert job.nodes() == tuple(site.name(index) for index in range(3))
    watcher = site.minder("watch", "--job", str(site.write_config(f"job = {job.id}", launchers=False)), "--act")
    assert watcher.stdout is not None
    threading.Thread(target=watcher.stdout.read, daemon=True).start()
    site.until(lambda: site.status("state/watch").get("typical_step_s"), "the usual length of a step", 120.0)
    reached = site.status("state/watch")["step"]
    site.until(lambda: site.status("state/watch")["step"] >= reached + 20, "20 steps more", 120.0)
    bad = site.lab.all_machines[1]
    stopped_s = time.time()
    site.stop_worker(bad, "train.py")
    site.until(lambda: site.outcomes().get("requeue"), "the requeue")
    (first,) = site.until(lambda: site.events(kinds.FIRST_STEP), "the first new step")
    print(f"first new step {first.time_s - stopped_s:.1f} s after the fault: {first.payload}")
    assert first.time_s > stopped_s and first.payload["step"] >= reached
    assert site.outcomes() == {"drain": "done", "requeue": "done", "evict": "done"}
    assert job.nodes() == (site.name(0), site.name(2), site.name(3))
    assert [event.payload["machine"] for event in site.events(kinds.BARRED)] == [bad.name]
    assert list(site.nodes.ours()) == [bad.name] and job.show().restarts == 1
    assert "iteration        1/" not in (site.folder / "job.log").read_text().split("iteration       10/")[1], (
        "it went on from its checkpoint"
    )
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait(30) == 0
