"""A real Prometheus with a certificate of a site's own authority and a password: met, drafted, read again by what watches."""

from __future__ import annotations

import http.server
import ipaddress
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from minder.config import load_config
from minder.doctor.contact import look_at_prometheus
from minder.doctor.telemetry import look_at_telemetry
from tests.certificates import make
from tests.doctor.conftest import free_port

S3CRET = "$2b$04$OD1mP36EEQKAoZ8AlHcjouPBlAUFX26cJ50yfkN3/DF8HAZdWXwAO"  # bcrypt of s3cret
NAMES = ("n1", "n2", "n3")


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",Hostname="{self.path[1:]}"}} 500\n'.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *unused: Any) -> None: ...


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """host:port of the Prometheus; its authority is authority.pem in tmp_path."""
    authority = make(tmp_path, "authority", None)
    make(tmp_path, "server", authority, x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    exporters = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=exporters.serve_forever, args=(0.1,), daemon=True).start()
    text = "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n- job_name: dcgm\n  static_configs:\n"
    for name in NAMES:
        text += f'  - {{targets: ["127.0.0.1:{exporters.server_port}"], labels: {{__metrics_path__: /{name}, instance: "{name}:9400"}}}}\n'
    (tmp_path / "prometheus.yml").write_text(text)
    (tmp_path / "web.yml").write_text(
        f"tls_server_config: {{cert_file: server.pem, key_file: server.key}}\nbasic_auth_users: {{obs: '{S3CRET}'}}\n"
    )
    port = free_port()
    command = [
        "prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--web.config.file={tmp_path}/web.yml",
        f"--storage.tsdb.path={tmp_path}/samples", f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield f"127.0.0.1:{port}"
        process.kill()
    exporters.shutdown()
    exporters.server_close()


def await_scrapes(keys: dict[str, Any]) -> None:
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        proposal = look_at_prometheus(keys).proposal
        if proposal is not None and proposal.identity is not None and len(proposal.identity.machines) == len(NAMES):
            return
        time.sleep(0.2)


def first(keys: dict[str, Any]) -> tuple[str, str]:
    finding = look_at_prometheus(keys).findings[0]
    return finding.status, finding.mend


@pytest.mark.server("prometheus")
def test_a_server_of_an_own_authority_with_a_password_is_met_drafted_and_read(address: str, tmp_path: Path) -> None:
    authority = str(tmp_path / "authority.pem")
    url, path = f"https://obs:s3cret@{address}", tmp_path / "job.toml"
    await_scrapes({"url": url, "ca_file": authority})
    contact = look_at_prometheus({"url": url, "ca_file": authority}, path)
    assert [Path(file).name for file in contact.written] == ["job.toml", "job.password"]
    assert "s3cret" not in path.read_text() and "s3cret" not in str(contact.findings)
    assert {stat.S_IMODE(Path(file).stat().st_mode) for file in contact.written} == {0o600}
    found = {item.check: item for item in look_at_telemetry(load_config(path))}
    assert found["telemetry"].seen == "samples of all 3 machines"

    for keys, mend in (
        ({"url": url}, "--ca-file"),
        ({"url": f"https://{address}", "ca_file": authority}, "--password-file"),
        ({"url": f"{url}/prefix", "ca_file": authority}, "path prefix"),
        ({"url": f"http://obs:s3cret@{address}"}, "https://"),
    ):
        status, remedy = first(keys)
        assert status == "missing" and mend in remedy
