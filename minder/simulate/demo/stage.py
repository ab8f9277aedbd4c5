"""Sets the stage: lab, agents, launchers, telemetry store, controller. Everything is a real process with its own log."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from minder.model.errors import MissingExtraError
from minder.model.private import make_private, open_private, write_private
from minder.record.incidents import Ledger
from minder.simulate.demo.named_prometheus import NamedPrometheus
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.prometheus import LabPrometheus, find_prometheus
from minder.simulate.lab.faults import Fault, InjectionRecord, check_fault, inject
from minder.simulate.lab.lab import Lab
from minder.simulate.lab.machine import LabMachine
from minder.wire.machine_tokens import give_token
from minder.wire.tokens import write_token

__all__ = ["MASKED_METRICS", "Stage"]

_AGENT_PORT, _LAUNCHER_PORT = 9401, 9402
MASKED_METRICS = ("processes_stopped", "cpu_throttled_ratio", "oom_kills_total", "memory_usage_ratio", "link_downs_total")


class Stage:
    """A lab with a job on it. Enter it, `start_controller`, inject; leaving it ends and removes everything."""

    def __init__(self, options: DemoOptions) -> None:
        self.options = options
        self.folder = options.out.absolute()
        self._stack = ExitStack()
        self._controller: subprocess.Popen[bytes] | None = None
        self.prometheus: LabPrometheus | None = None
        self.injected: InjectionRecord | None = None

    def __enter__(self) -> Stage:
        MissingExtraError.demand("torch", "torch")  # before eight machines fail at it
        for name in ("state", "train", "checkpoints"):
            make_private(self.folder / name)
        with ExitStack() as half_built:
            half_built.callback(self._stack.close)
            self._build()
            half_built.pop_all()
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop_controller()
        self._stack.close()

    @property
    def ledger_path(self) -> Path:
        return self.folder / "state" / "ledger.db"

    @property
    def tokens(self) -> Path:
        """A file for each machine."""
        return self.folder / "state" / "tokens"

    @property
    def job(self) -> str:
        return f"lab-{self.lab.run_id}"

    @property
    def status_path(self) -> Path:
        return self.folder / "state" / "status.json"

    @property
    def recording_path(self) -> Path:
        """What the pipeline was fed is always recorded: the report's picture is drawn from it."""
        return (self.options.record or self.folder / "recording").absolute()

    @property
    def lab_mode(self) -> str:
        return self.lab.mode

    @property
    def telemetry(self) -> str:
        """Where the samples come from, for a reader."""
        if self.prometheus is not None:
            return f"Prometheus every {self.options.scrape_interval_s:g} s"
        if self.options.telemetry in ("auto", "scrape"):
            return f"built-in scraper every {self.options.scrape_interval_s:g} s"
        return f"Prometheus at {self.options.telemetry}"

    @property
    def target(self) -> LabMachine:
        return self.lab.machines[self.options.machine]

    def ledger(self) -> Ledger:
        return Ledger(self.ledger_path)

    def start_controller(self) -> None:
        """`minder run --config`; called again after `kill_controller` it is a restarted controller."""
        command = [sys.executable, "-m", "minder", "run", "--config", str(self.folder / "job.toml"), "--act"]
        with open_private(self.folder / "controller.log", "ab") as log:
            self._controller = subprocess.Popen(
                command, env=os.environ | self.lab.mark, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill_controller(self) -> None:
        if self._controller is not None:
            self._controller.kill()
            self._controller.wait()

    def stop_controller(self) -> None:
        if self._controller is not None and self._controller.poll() is None:
            self._controller.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._controller.wait(10.0)
            self.kill_controller()

    def controller_status(self) -> int | None:
        """None while it runs, else its exit status."""
        return None if self._controller is None else self._controller.poll()

    def inject(self, kind: str, machine_index: int) -> InjectionRecord:
        # A launcher gives its workers the job's environment after they were started: from outside it is not seen.
        store = None if self.options.memory else self.folder / "checkpoints"
        self.injected = inject(self.lab, Fault(kind, store=store), machine_index)
        return self.injected

    def restart_agent(self, machine: LabMachine) -> None:
        if machine.agent is not None:
            machine.agent.kill()
            machine.agent.wait()
        self._start_agent(machine)

    def power_off(self, machines: Sequence[LabMachine]) -> None:
        """Everything on these machines dies at once; what is on their disks stays."""
        with ThreadPoolExecutor(len(machines)) as pool:
            list(pool.map(lambda machine: machine.kill_all(), machines))

    def power_on(self, machines: Sequence[LabMachine]) -> None:
        """They come back as after a boot: a new agent, a new launcher, no worker of the job."""
        for machine in machines:
            self._start_agent(machine)
            self._start_launcher(machine)

    def _build(self) -> None:
        options = self.options
        self.lab = self._stack.enter_context(
            Lab(options.machines, options.standbys, root_dir=self.folder / "machines", mode=options.mode)
        )  # fmt: skip
        check_fault(options.fault, self.lab.mode, self.lab.capabilities)
        for machine in self.lab.all_machines:
            give_token(self.tokens, machine.name)
        self._metrics_token_file = self.folder / "state" / "metrics-token"
        self._metrics_token = write_token(self._metrics_token_file)
        for machine in self.lab.all_machines:
            self._start_agent(machine)
            self._start_launcher(machine)
        telemetry = self._start_telemetry()
        write_private(self.folder / "job.toml", self._job_toml(telemetry))
        self._stack.callback(self._stop_rendezvous)

    def _stop_rendezvous(self) -> None:
        from minder.act.recovery.rendezvous import RendezvousHost

        RendezvousHost(self.folder / "state", self.lab.controller_address).stop()

    def _start_agent(self, machine: LabMachine) -> None:
        extra = ["--gpu", "off", "--metrics-token-file", str(self._metrics_token_file)]
        if self.options.masked:
            extra += ["--hide", ",".join(MASKED_METRICS)]
        self.lab.start_agent(machine, self.tokens / machine.name, _AGENT_PORT, extra, self._agent_environment(machine))

    def _agent_environment(self, machine: LabMachine) -> dict[str, str]:
        """What an agent's environment holds on top."""
        return {}

    def _start_launcher(self, machine: LabMachine) -> None:
        options = self.options
        flags = ["--job", self.job, "--slots", "1", "--barrier", "script" if options.in_place else "bootstrap"]
        flags += [
            "--env",
            f"GLOO_SOCKET_IFNAME={machine.place.data_interface}",
            "--allow-updates",
            str(self.folder / "updates" / machine.name),
        ]
        if not options.in_place:
            flags += ["--warm-spares", "--env", "MINDER_PRELOAD=torch.distributed.checkpoint,torch.nn.parallel"]
        if options.fault in ("exception", "nan"):
            rank = f":{options.machine}" if options.fault == "nan" else ""
            flags += ["--env", f"MINDER_LAB_FAULT={options.fault}@{options.injected_at}{rank}"]
        if options.memory:
            flags += ["--cache-bytes", "64M", "--cache-folder", str(machine.memory_dir), "--cache-listen", f"{machine.data_address}:0"]
        self.lab.start_launcher(machine, self.tokens / machine.name, _LAUNCHER_PORT, [*flags, "--", *self._script()])

    def _script(self) -> list[str]:
        """The training script and its arguments."""
        options = self.options
        script = [str(training_script()), "--output", str(self.folder / "train"), "--steps", str(options.total_steps)]
        script += ["--seed", str(options.seed), "--step-seconds", str(options.step_seconds), "--no-sync"]
        if options.evaluate_every:
            script += ["--evaluate-every", str(options.evaluate_every), "--evaluate-seconds", "6"]
        if not options.in_place:
            script += ["--no-in-place"]
        if options.plain:
            script += ["--plain", "--log-every-rank"]
        if options.memory:
            script += ["--memory"]
        return script

    def _start_telemetry(self) -> dict[str, Any]:
        options = self.options
        wanted = options.telemetry
        if wanted == "auto":
            wanted = "prometheus" if find_prometheus() else "scrape"
        if wanted == "scrape":
            return {"source": "scrape", "interval_s": options.scrape_interval_s}
        targets = {machine.name: f"{machine.address}:{_AGENT_PORT}" for machine in self.lab.all_machines}
        if wanted == "prometheus":
            server = LabPrometheus(self.folder / "prometheus", targets, self._metrics_token, options.scrape_interval_s, self.lab.mark)
            self.prometheus = self._stack.enter_context(server)
            wanted = server.url
        else:
            targets_folder = self.folder.parent / "prometheus"
            self._stack.enter_context(NamedPrometheus(wanted, targets_folder, targets, self._metrics_token, options.scrape_interval_s))
        return {"source": "prometheus", "url": wanted, "interval_s": options.scrape_interval_s}

    def _job_toml(self, telemetry: dict[str, Any]) -> str:
        lines = [
            f'name = "{self.job}"',
            f'state_dir = "{self.folder / "state"}"',
            'checkpoints = "memory"' if self.options.memory else f'checkpoint_dir = "{self.folder / "checkpoints"}"',
            f'rendezvous_address = "{self.lab.controller_address}"',
            f'machine_token_dir = "{self.tokens}"',
        ]
        lines.append(f'record_dir = "{self.recording_path}"')
        lines += ["", "[telemetry]", *(f"{key} = {_toml(value)}" for key, value in telemetry.items())]
        lines += ["", "[standby]", "probe_every_s = 0", ""]  # all machines share this host: their probes would measure the job
        lines += ["[policy]", "breaker_share = 0.5", "cooldown_s = 4.0", ""]
        if self.options.slow_machines != "evict":  # not the default: a ladder of a bench's own may follow
            lines += ["[policy.ladder]", f'slow_machines = "{self.options.slow_machines}"', ""]
        for index, machine in enumerate(self.lab.all_machines):
            lines += [
                "[[machines]]",
                f'name = "{machine.name}"',
                f'agent = "http://{machine.address}:{_AGENT_PORT}"',
                f'launcher = "http://{machine.address}:{_LAUNCHER_PORT}"',
                f'job_address = "{machine.data_address}"',
                f"standby = {str(index >= self.options.machines).lower()}",
                f'local = {{ run_dir = "{machine.run_dir}" }}',
                "",
            ]
        return "\n".join(lines)


def training_script() -> Path:
    """The lab's training script, as a user would name it on the command line."""
    import minder.simulate.lab as lab_package

    return Path(lab_package.__file__ or "").parent / "train.py"


def _toml(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
