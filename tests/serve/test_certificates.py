"""Mutual TLS: a machine's token counts only with that machine's certificate. Certificates are made here, the service is a real one."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import httpx
import pytest
import uvicorn
from cryptography import x509

from minder.record.incidents import Ledger, kinds
from minder.record.store.tokens import TokenRecord, new_id
from serve.app import build_app
from serve.identity.certificates import PeerProtocol
from serve.settings import Settings
from serve.state import open_service


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, load_file: Callable[[Path], ModuleType]) -> Iterator[SimpleNamespace]:
    make = load_file(Path(__file__).parents[1] / "certificates.py").make
    folder = tmp_path_factory.mktemp("tls")
    authority, other = make(folder, "authority", None), make(folder, "stranger", None)
    make(folder, "localhost", authority, x509.DNSName("localhost"))
    make(folder, "m1", authority)
    make(folder, "named", authority, x509.DNSName("m2"))  # its common name is "named": the DNS name counts
    make(folder, "forged", other, x509.DNSName("m1"))
    ledger = folder / "ledger.db"
    with Ledger(ledger) as opened:
        opened.append(kinds.JOB_REGISTERED, {"machines": ["m1", "m2"]}, job="llm")
    service = open_service(Settings(str(ledger), certified_machines=True))
    tokens = {
        name: service.tokens.create(TokenRecord(new_id(), name, role, 0.0, "root", machine=machine))
        for name, role, machine in (("m1", "agent", "m1"), ("m2", "agent", "m2"), ("alice", "operator", None))
    }
    config = uvicorn.Config(
        build_app(service), port=0, log_level="critical", http=PeerProtocol, ssl_certfile=folder / "localhost.pem",
        ssl_keyfile=str(folder / "localhost.key"), ssl_ca_certs=str(folder / "authority.pem"), ssl_cert_reqs=ssl.CERT_OPTIONAL,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield SimpleNamespace(folder=folder, tokens=tokens, url=f"https://localhost:{server.servers[0].sockets[0].getsockname()[1]}")
    server.should_exit = True
    thread.join(30)
    service.close()


def call(site: SimpleNamespace, token: str, certificate: str | None, machine: str = "m1") -> int:
    context = ssl.create_default_context(cafile=str(site.folder / "authority.pem"))
    if certificate is not None:
        context.load_cert_chain(site.folder / f"{certificate}.pem", site.folder / f"{certificate}.key")
    signal = {"id": new_id(), "kind": "link", "state": "down", "machine": machine}
    headers = {"Authorization": f"Bearer {site.tokens[token]}", "X-Client-Cert": machine, "X-SSL-Client-S-DN": f"CN={machine}"}
    with httpx.Client(verify=context, trust_env=False) as client:
        return client.post(f"{site.url}/v1/signals", headers=headers, json={"signals": [signal]}).status_code


@pytest.mark.parametrize(
    ("token", "certificate", "machine", "status"),
    [
        ("m1", "m1", "m1", 202),
        ("m2", "named", "m2", 202),
        ("m1", None, "m1", 403),  # a stolen token alone, whatever its headers say
        ("m1", "named", "m1", 403),  # another machine's certificate
        ("m1", "m1", "m2", 403),  # its own, and another's name in the signal
        ("alice", None, "m1", 202),  # people and their programs need none
    ],
)
def test_the_certificate_must_be_the_machines_own(
    site: SimpleNamespace, token: str, certificate: str | None, machine: str, status: int
) -> None:
    assert call(site, token, certificate, machine) == status


def test_a_certificate_of_another_authority_does_not_get_in(site: SimpleNamespace) -> None:
    with pytest.raises(httpx.TransportError):
        call(site, "m1", "forged")
