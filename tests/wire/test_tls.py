"""TLS between a controller and the agents and launchers that it asks: real processes, certificates that are made here."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from cryptography import x509

from minder.config import load_config
from minder.doctor.reach import look_at_endpoints
from minder.ingest.sources.scrape import ScrapeSource, ScrapeTarget
from minder.model.errors import BadInputError, ConfigError, WireError
from minder.wire.client import Endpoint, MachineClient, MachineEndpoints
from minder.wire.fleet import Fleet
from minder.wire.plain import PlainHttp
from minder.wire.tls import client_context, server_tls

IDLE = Path(__file__).parents[1] / "launcher" / "scripts" / "idle.py"
NO_TORCH = Path(__file__).parents[1] / "launcher" / "scripts" / "no_torch"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, load_file: Callable[[Path], ModuleType]) -> Iterator[SimpleNamespace]:
    """Agents `mutual` (asks for certificates), `expired`, `plain`, and a launcher that asks for certificates."""
    folder = tmp_path_factory.mktemp("tls")
    make = load_file(Path(__file__).parents[1] / "certificates.py").make
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    authority, stranger = make(folder, "authority", None), make(folder, "stranger", None)
    make(folder, "machine", authority, here)
    make(folder, "expired", authority, here, -60.0)
    make(folder, "controller", authority)
    make(folder, "forged", stranger)
    (folder / "token").write_text("a-token-of-the-tests")
    (folder / "token").chmod(0o600)
    ports = {name: free_port() for name in ("mutual", "expired", "plain", "launcher")}
    with ExitStack() as stack:

        def start(*words: str) -> None:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(NO_TORCH), os.environ.get("PYTHONPATH", "")])}
            process = subprocess.Popen(
                [sys.executable, "-m", "minder", *words], env=environment, stdout=(folder / "log").open("ab"), stderr=subprocess.STDOUT
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)

        def tls(name: str) -> tuple[str, ...]:
            return ("--tls-cert", f"{folder}/{name}.pem", "--tls-key", f"{folder}/{name}.key")

        both = (*tls("machine"), "--tls-client-ca", f"{folder}/authority.pem")
        for name, more in (("mutual", both), ("expired", tls("expired")), ("plain", ())):
            start("agent", "--listen", f"127.0.0.1:{ports[name]}", "--machine", "m0", "--run-dir", f"{folder}/{name}", "--gpu", "off",
                  "--token-file", f"{folder}/token", *more)  # fmt: skip
        start("launch", "--job", "llm", "--machine", "m0", "--listen", f"127.0.0.1:{ports['launcher']}", "--run-dir", f"{folder}/launcher",
              "--token-file", f"{folder}/token", *both, "--", str(IDLE))  # fmt: skip
        end_s = time.monotonic() + 90.0
        for port in ports.values():
            while not listens(port):
                assert time.monotonic() < end_s, (folder / "log").read_text()
                time.sleep(0.1)
        yield SimpleNamespace(folder=folder, ports=ports)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def context(site: SimpleNamespace, authority: str | None = "authority", own: str | None = "controller") -> Any:
    def path(name: str | None, kind: str) -> str | None:
        return None if name is None else str(site.folder / f"{name}.{kind}")

    return client_context(path(authority, "pem"), path(own, "pem"), path(own, "key"))


def refusal(site: SimpleNamespace, scheme: str, name: str, tls: Any) -> str:
    """The line that a controller has of a call to this agent."""
    endpoint = Endpoint(f"{scheme}://127.0.0.1:{site.ports[name]}", "a-token-of-the-tests")

    async def ask() -> str:
        with closing(PlainHttp(tls)) as http, pytest.raises(WireError) as caught:
            await MachineClient(MachineEndpoints("m0", endpoint, None), http).health(20.0)
        return str(caught.value)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("scheme", "name", "changes", "expected"),
    [
        ("https", "mutual", {"authority": "stranger"}, "its certificate is refused: "),
        ("https", "mutual", {"authority": None}, "its certificate is refused: "),
        ("https", "expired", {}, "its certificate is refused: certificate has expired"),
        ("https", "mutual", {"own": None}, "it hung up without an answer: if it was started with --tls-client-ca, tls.cert"),
        ("https", "mutual", {"own": "forged"}, "it hung up without an answer: if it was started with --tls-client-ca, tls.cert"),
        ("https", "plain", {}, "it does not speak TLS: write http://"),
        ("http", "mutual", {}, "write https:// in job.toml"),
    ],
)
def test_what_is_wrong_is_one_line_that_says_how_to_mend_it(
    site: SimpleNamespace, scheme: str, name: str, changes: dict[str, Any], expected: str
) -> None:
    said = refusal(site, scheme, name, context(site, **changes))
    assert expected in said and said.startswith("agent of m0 at http") and "\n" not in said


def job(
    site: SimpleNamespace, scheme: str = "https", tls: str = 'ca = "authority.pem"\ncert = "controller.pem"\nkey = "controller.key"'
) -> Path:
    path: Path = site.folder / "job.toml"
    urls = {part: f"{scheme}://127.0.0.1:{site.ports[name]}" for part, name in (("agent", "mutual"), ("launcher", "launcher"))}
    path.write_text(
        f'name = "llm"\nagent_token_file = "token"\n[tls]\n{tls}\n[[machines]]\nname = "m0"\n'
        f'agent = "{urls["agent"]}"\nlauncher = "{urls["launcher"]}"\n'
    )
    return path


def test_a_controller_reads_agent_and_launcher_over_mutual_tls(site: SimpleNamespace) -> None:
    config = load_config(job(site))
    findings = {item.check: item for item in look_at_endpoints(config)}
    assert findings["agents"].status == findings["launchers"].status == "ok", findings
    fleet = Fleet(config.endpoints(), tls=config.tls.context())
    target = config.endpoints()[0].agent
    assert target is not None
    source = ScrapeSource([ScrapeTarget("m0", target.url, target.token)], timeout_s=20.0, tls=config.tls.context())
    fleet.start()
    try:
        end_s = time.monotonic() + 60.0
        while (view := fleet.views()["m0"]).agent_age_s is None or view.launcher_age_s is None:
            assert time.monotonic() < end_s, fleet.refusals()
            time.sleep(0.05)
        while not (samples := source.collect(time.time())):
            assert time.monotonic() < end_s, source.failures
            time.sleep(0.1)
        assert {sample.machine for sample in samples} == {"m0"} and fleet.refusals() == {}
    finally:
        fleet.stop()
        source.close()


def test_a_certificate_that_is_refused_is_no_silence(site: SimpleNamespace) -> None:
    config = load_config(job(site, tls='ca = "stranger.pem"'))
    fleet = Fleet(config.endpoints(), tls=config.tls.context())
    fleet.start()
    try:
        end_s = time.monotonic() + 60.0
        while "its certificate is refused" not in fleet.refusals().get("m0", ""):
            assert time.monotonic() < end_s
            time.sleep(0.05)
    finally:
        fleet.stop()


@pytest.mark.parametrize(
    ("tls", "expected"),
    [
        ('ca = "nowhere.pem"', "nowhere.pem cannot be used: No such file"),
        ('ca = "token"', "token cannot be used"),
        ('cert = "controller.pem"', "give both tls.cert and tls.key"),
        ('cert = "controller.pem"\nkey = "machine.key"', "cannot be used: KEY_VALUES_MISMATCH"),
        ('certificate = "controller.pem"', "tls.certificate"),
    ],
)
def test_what_is_wrong_with_the_configuration_is_said_when_it_is_read(site: SimpleNamespace, tls: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(job(site, tls=tls))
    assert expected in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cert", "key", "authority", "expected"),
    [
        ("machine.pem", None, None, "give both --tls-cert and --tls-key"),
        (None, None, "authority.pem", "--tls-client-ca goes with"),
        pytest.param("nowhere.pem", "machine.key", None, "No such file", marks=pytest.mark.lab),
        pytest.param("machine.pem", "controller.key", None, "KEY_VALUES_MISMATCH", marks=pytest.mark.lab),
        ("machine.pem", "machine.key", "token", "--tls-client-ca"),
    ],
)
def test_what_an_agent_or_launcher_cannot_use_is_one_line(
    site: SimpleNamespace, cert: str | None, key: str | None, authority: str | None, expected: str
) -> None:
    paths = [None if name is None else site.folder / name for name in (cert, key, authority)]
    with pytest.raises(BadInputError) as caught:
        server_tls(*paths)
    assert expected in str(caught.value) and "\n" not in str(caught.value)
    assert server_tls(None, None, None) is None
