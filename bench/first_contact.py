"""From a Prometheus as it is found to the first score of the right machines: minutes, and lines that a person has to write.

`python bench/first_contact.py [--shapes NAME ...] [--every N] [--out FILE]`. Real Prometheus servers (`prometheus` on the PATH) scrape
pages of exporters every second: eight recorded sites (tests/doctor/data), those of tests/doctor/situations.py, and shapes of our own, among
them relabelling as in kube-prometheus-stack, federation, remote write, one collector in front of all hosts, and a server with its own
authority and a password. For each: `minder doctor --draft`, then `minder watch` until the draft's machines all have a score. A line by hand
is counted where the drafted machines are not the site's.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.doctor.situations import SITUATIONS

RECORDED = Path(__file__).resolve().parent.parent / "tests/doctor/data"
PATIENCE_S = 90.0
S3CRET = "$2b$04$OD1mP36EEQKAoZ8AlHcjouPBlAUFX26cJ50yfkN3/DF8HAZdWXwAO"  # bcrypt of s3cret


@dataclass(frozen=True)
class Target:
    """One page as one target. labels: as relabelling leaves them."""

    job: str
    page: str
    labels: dict[str, str]
    honor_labels: bool = False


@dataclass(frozen=True)
class Shape:
    """machines: the right answer. build: starts the servers, and returns what `doctor` is called with."""

    name: str
    machines: tuple[str, ...]
    targets: tuple[Target, ...] = ()
    start: Callable[[Site], list[str]] | None = None
    words: tuple[str, ...] = ()


@dataclass
class Site:
    """Exporters and servers of one shape, all on loopback."""

    folder: Path
    stack: ExitStack
    pages: dict[str, str] = field(default_factory=dict)
    port: int = 0

    def serve(self) -> None:
        site = self

        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = re.sub(r"(?m)^(node_time_seconds\S*) .*$", rf"\1 {time.time()}", site.pages.get(self.path, "")).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *unused: Any) -> None: ...

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        server.handle_error = lambda *unused: None  # type: ignore[method-assign]  # Prometheus hangs up when it is late
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        self.stack.callback(server.server_close)
        self.stack.callback(server.shutdown)
        self.port = server.server_port

    def prometheus(self, name: str, targets: Sequence[Target], more: str = "", options: Sequence[str] = ()) -> int:
        """Starts one; its port. more: lines of its configuration. options: of its command line."""
        jobs: dict[str, list[Target]] = {}
        for target in targets:
            jobs.setdefault(target.job, []).append(target)
        lines = ["global: {scrape_interval: 1s, scrape_timeout: 1s}" if "global:" not in more else "", more, "scrape_configs:"]
        for job, items in jobs.items():
            honor = str(items[0].honor_labels).lower()
            lines += [f"- job_name: {job}", f"  honor_labels: {honor}", "  static_configs:"]
            for item in items:
                path = f"/{name}/{len(self.pages)}"
                self.pages[path] = item.page
                lines.append(
                    "  - " + json.dumps({"targets": [f"127.0.0.1:{self.port}"], "labels": {"__metrics_path__": path, **item.labels}})
                )
        return self._run(name, "\n".join(lines) + "\n", options)

    def _run(self, name: str, config: str, options: Sequence[str] = ()) -> int:
        port = free_port()
        (self.folder / f"{name}.yml").write_text(config)
        command = [
            "prometheus", f"--config.file={self.folder}/{name}.yml", f"--storage.tsdb.path={self.folder}/{name}",
            f"--web.listen-address=127.0.0.1:{port}", *options,
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=(self.folder / f"{name}.log").open("wb"))
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return port

    def federation(self, targets: Sequence[Target]) -> list[str]:
        source = self.prometheus("source", targets)
        scrape = (
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n- job_name: federate\n  honor_labels: true\n"
            "  metrics_path: /federate\n  params: {'match[]': ['{__name__=~\".+\"}']}\n"
            f'  static_configs: [{{targets: ["127.0.0.1:{source}"]}}]\n'
        )
        return [f"http://127.0.0.1:{self._run('top', scrape)}"]

    def remote_write(self, machines: Sequence[str]) -> list[str]:
        """A scraper on every host, all of which call their exporters localhost."""
        receiver = self._run("receiver", "global: {scrape_interval: 15s}\n", ["--web.enable-remote-write-receiver"])
        for machine in machines:
            outer = (
                f"global: {{scrape_interval: 1s, scrape_timeout: 1s, external_labels: {{host: {machine}}}}}\n"
                f'remote_write: [{{url: "http://127.0.0.1:{receiver}/api/v1/write", queue_config: {{batch_send_deadline: 1s}}}}]'
            )
            pages = (("dcgm", dcgm(machine, hostname=False), "localhost:9400"), ("node", node(machine), "localhost:9100"))
            self.prometheus(machine, [Target(job, page, {"instance": instance}) for job, page, instance in pages], outer)
        return [f"http://127.0.0.1:{receiver}"]

    def with_password(self, targets: Sequence[Target]) -> list[str]:
        """With a certificate of its own, and the password s3cret of the user obs in the address."""
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "k.pem", "-out", "c.pem", "-days", "2",
             "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], cwd=self.folder, check=True, capture_output=True,
        )  # fmt: skip
        (self.folder / "web.yml").write_text(
            "tls_server_config: {cert_file: c.pem, key_file: k.pem}\nbasic_auth_users: {obs: '" + S3CRET + "'}\n"
        )
        port = self.prometheus("main", targets, options=[f"--web.config.file={self.folder}/web.yml"])
        return [f"https://obs:s3cret@127.0.0.1:{port}", "--ca-file", str(self.folder / "c.pem")]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def dcgm(machine: str, hostname: bool | str = True, old: bool = False) -> str:
    """A page of the DCGM exporter with two GPUs. old: as version 1 names them."""
    host = f',Hostname="{machine if hostname is True else hostname}"' if hostname else ""
    new = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP")
    names = ("dcgm_gpu_utilization", "dcgm_power_usage", "dcgm_gpu_temp") if old else new
    values = (97, 612.5, 60)
    return "".join(
        f'{name}{{gpu="{gpu}",UUID="GPU-{machine}-{gpu}"{host}}} {value}\n'
        for name, value in zip(names, values, strict=True)
        for gpu in (0, 1)
    )


def node(machine: str) -> str:
    return (
        f'node_uname_info{{nodename="{machine}",sysname="Linux"}} 1\nnode_memory_MemAvailable_bytes 4e11\nnode_memory_MemTotal_bytes 1e12\n'
        'node_network_receive_bytes_total{device="eth0"} 5e12\nnode_network_transmit_bytes_total{device="eth0"} 5e12\n'
    )


def kube(machines: Sequence[str], pod_names: bool) -> tuple[Target, ...]:
    """As the chart kube-prometheus-stack relabels it. pod_names: the GPU exporter calls itself by its pod's name."""
    found = []
    for number, machine in enumerate(machines):
        pod = f"dcgm-exporter-{number}x7k"
        given = {"namespace": "gpu-operator", "service": "dcgm", "endpoint": "metrics", "container": "exporter", "pod": pod}
        page = dcgm(machine, pod if pod_names else True)
        found.append(Target("dcgm", page, {"instance": f"10.244.{number}.9:9400", **given}))
        given = {"namespace": "monitoring", "service": "node-exporter", "pod": f"node-exporter-{number}q"}
        found.append(Target("node-exporter", node(machine), {"instance": f"10.0.3.{number}:9100", **given}))
    infos = "".join(
        f'kube_pod_info{{namespace="gpu-operator",pod="dcgm-exporter-{number}x7k",node="{machine}",pod_ip="10.244.{number}.9"}} 1\n'
        for number, machine in enumerate(machines)
    )
    return (*found, Target("kube-state-metrics", infos, {"instance": "10.244.9.9:8080"}, honor_labels=True))


def acme(machines: Sequence[str]) -> tuple[Target, ...]:
    """A site's own names and units; only the GPU targets have a label with the machine."""
    found = []
    for number, machine in enumerate(machines):
        page = "".join(
            f'acme_gpu_utilization_percent{{card="{card}"}} 91\nacme_gpu_power_milliwatts{{card="{card}"}} 600000\n' for card in (0, 1)
        )
        found.append(Target("acme-gpus", page, {"instance": f"10.1.0.{number}:9400", "srv": machine}))
        found.append(Target("acme-hosts", node("x").replace("node_", "acme_node_"), {"instance": f"10.1.0.{number}:9100"}))
    return tuple(found)


def collector(machines: Sequence[str]) -> tuple[Target, ...]:
    """An OpenTelemetry collector that shows what all hosts pushed."""
    lines = []
    for machine in machines:
        for line in (dcgm(machine, hostname=False) + node(machine)).splitlines():
            name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
            lines.append(f'{name}{{host_name="{machine}"' + (f",{rest}" if "{" in line else f"}} {rest}"))
    return (Target("otel-collector", "\n".join(lines) + "\n", {"instance": "collector:8889"}),)


def own_shapes() -> list[Shape]:
    names = tuple(f"gpu-{number}" for number in range(1, 5))
    plain = tuple(
        target
        for machine in names
        for target in (
            Target("dcgm", dcgm(machine), {"instance": f"{machine}:9400", "node": machine}),
            Target("node", node(machine), {"instance": f"{machine}:9100", "node": machine}),
        )
    )
    domains = tuple(
        target
        for machine in names
        for target in (
            Target("dcgm", dcgm(f"{machine}.cluster.local"), {"instance": f"10.2.0.{machine[-1]}:9400"}),
            Target("node", node(machine), {"instance": f"10.3.0.{machine[-1]}:9100"}),
        )
    )
    old = tuple(
        target
        for machine in names
        for target in (
            Target("dcgm", dcgm(machine, hostname=False, old=True), {"instance": f"10.4.0.{machine[-1]}:9400"}),
            Target("node", node(machine), {"instance": f"10.4.0.{machine[-1]}:9100"}),
        )
    )
    return [
        Shape("kube-prometheus-stack", names, kube(names, pod_names=False)),
        Shape("kube, GPU exporter named by its pod", names, kube(names, pod_names=True)),
        Shape("FQDN against short names", names, domains),
        Shape("DCGM 1.x, addresses only", names, old),
        Shape("a site's own names", names, acme(names)),
        Shape("one collector for all", names, collector(names)),
        Shape("federation", names, start=lambda site: site.federation(plain)),
        Shape("remote write from localhost", names, start=lambda site: site.remote_write(names)),
        Shape("own authority and password", names, start=lambda site: site.with_password(plain)),
    ]


def recorded_shapes() -> list[Shape]:
    expected = dict(
        item.split("=")
        for item in ["01=gpu-h100-0{}", "02=edge-0{}", "03=gpu-n{}", "04=node0{}", "05=gpu-{}", "06=amd-0{}", "07=gpu-0{}", "08=10.0.0.1{}"]
    )
    found = []
    for folder in sorted(RECORDED.iterdir()):
        first = 0 if folder.name.startswith("03") else 1
        items = json.loads((folder / "targets.json").read_text())
        targets = [
            Target(item["job"], (folder / item["file"]).read_text(), item["labels"], item.get("honor_labels", False)) for item in items
        ]
        machines = tuple(expected[folder.name[:2]].format(number) for number in range(first, first + 4))
        found.append(Shape(folder.name, machines, tuple(targets)))
    return found


def situation_shapes() -> list[Shape]:
    """Those of tests/doctor that a server which runs can be: with machines to find, and without series that have ended."""
    return [
        Shape(
            item.name,
            item.machines,
            tuple(Target(target.job, target.page, dict(target.labels), target.honor_labels) for target in item.targets),
            words=("--selector", item.selector) if item.selector else (),
        )
        for item in SITUATIONS
        if item.machines and item.fine and not any(target.age_s or not target.job for target in item.targets)
    ]


def try_shape(shape: Shape) -> dict[str, Any]:
    """Seconds from the command to the first score of every machine, and what had to be written by hand."""
    with ExitStack() as stack:
        site = Site(Path(stack.enter_context(tempfile.TemporaryDirectory())), stack)
        site.serve()
        words = shape.start(site) if shape.start else [f"http://127.0.0.1:{site.prometheus('main', shape.targets)}"]
        words = [*words, *shape.words]
        time.sleep(8.0)  # a Prometheus that is there already has scraped
        environment = {**os.environ, "MINDER_STATE_DIR": str(site.folder / "state"), "MINDER_NO_COLOR": "1"}
        minder = [sys.executable, "-m", "minder"]
        begun = time.monotonic()
        command = [*minder, "doctor", "--prometheus", *words, "--draft", "job.toml"]
        done = subprocess.run(command, cwd=site.folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
        doctor_s = time.monotonic() - begun
        path = site.folder / "job.toml"
        row: dict[str, Any] = {
            "shape": shape.name,
            "doctor_s": round(doctor_s, 1),
            "status": done.returncode,
            "by_hand": None,
            "score_s": None,
        }
        if not path.exists():
            return row | {"machines": [], "said": (done.stdout + done.stderr)[-400:]}
        draft = tomllib.loads(path.read_text())
        row["machines"] = [machine["name"] for machine in draft["machines"]]
        row["by_hand"] = len(set(row["machines"]) ^ set(shape.machines))
        log = stack.enter_context((site.folder / "watch.log").open("wb"))
        command = [*minder, "watch", "--job", "job.toml"]
        watch = subprocess.Popen(command, cwd=site.folder, env=environment, stdout=subprocess.DEVNULL, stderr=log)
        stack.callback(watch.wait)
        stack.callback(watch.terminate)
        scored = await_scores(draft["metrics"]["listen"], set(row["machines"]))
        if not scored:
            row["said"] = (site.folder / "watch.log").read_text()[-400:]
        return row | {"score_s": round(time.monotonic() - begun, 1) if scored else None}


def await_scores(listen: str, machines: set[str]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://{listen}/metrics", timeout=5.0) as answer:
                text = answer.read().decode()
            if machines <= set(re.findall(r'^minder_controller_score_ratio\{machine="([^"]+)"', text, re.MULTILINE)):
                return True
        except OSError:
            pass
        time.sleep(0.3)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=None, help="names, or the beginnings of names")
    parser.add_argument("--out", type=Path, default=Path("bench-out/first_contact.json"))
    parser.add_argument("--every", type=int, default=16, help="of the sites of tests/doctor each so many-th; 1: all, an hour")
    options = parser.parse_args()
    sites = situation_shapes()[:: 1 if options.shapes else options.every]
    every = [*recorded_shapes(), *own_shapes(), *sites]
    shapes = [item for item in every if not options.shapes or item.name.startswith(tuple(options.shapes))]
    rows = []
    for shape in shapes:
        rows.append(try_shape(shape))
        print(json.dumps(rows[-1]), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=1))
    good = [row for row in rows if row["by_hand"] == 0 and row["score_s"] is not None]
    worst_s = max((row["score_s"] for row in good), default=0.0)
    print(f"{len(good)} of {len(rows)} shapes: the right machines, no line by hand, first score after {worst_s:.0f} s at the most")


if __name__ == "__main__":
    main()
