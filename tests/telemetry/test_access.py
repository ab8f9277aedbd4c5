"""How a Prometheus is reached: what is sent, what is never printed, and one remedy for each refusal."""

from __future__ import annotations

import base64
import http.server
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from minder.doctor.series import Server
from minder.ingest.sources.access import Access, refusal_of_answer, refusal_of_error, split_user
from minder.ingest.sources.prometheus import PrometheusOptions, PrometheusSource
from minder.ingest.sources.settings import PrometheusSettings
from minder.model.errors import ConfigError, SourceError
from tests.certificates import make


def test_what_is_sent() -> None:
    assert Access(username="obs", password="s3c").all_headers()["Authorization"] == "Basic " + base64.b64encode(b"obs:s3c").decode()
    assert Access(token="t", tenant="ml").all_headers() == {"Authorization": "Bearer t", "X-Scope-OrgID": "ml"}
    assert Access(token="t", headers={"authorization": "own"}).all_headers() == {"authorization": "own"}
    assert "s3c" not in repr(Access(username="obs", password="s3c", token="t", headers={"a": "s3c"}))


def test_the_environment_gives_what_no_file_gives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINDER_PROMETHEUS_PASSWORD", "of-env")
    monkeypatch.setenv("MINDER_PROMETHEUS_TOKEN", "t-env")
    assert PrometheusSettings(url="http://p", username="obs").access().password == "of-env"
    assert PrometheusSettings(url="http://p").access().token == "t-env"
    file = tmp_path / "password"
    file.write_text("of-file\n")
    file.chmod(0o600)
    found = PrometheusSettings(url="http://p", username="obs", password_file=str(file)).access()
    assert (found.password, found.token) == ("of-file", "")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match=r"telemetry\.password_file.*chmod 600"):
        PrometheusSettings(url="http://p", username="obs", password_file=str(file)).access()


def test_a_password_in_the_address_is_used_and_not_printed() -> None:
    settings = PrometheusSettings(url="http://obs:s3cret@127.0.0.1:1/pre")
    assert settings.address == "http://127.0.0.1:1/pre" and settings.access().password == "s3cret"
    with pytest.raises(SourceError) as caught:
        PrometheusSource(settings.options()).collect(1000.0)
    assert "s3cret" not in str(caught.value) and "127.0.0.1:1/pre" in str(caught.value)
    assert split_user("http://p:9090") == ("http://p:9090", "", "")


@pytest.mark.parametrize(
    ("status", "text", "mend"),
    [
        (401, "Unauthorized", "--password-file"),
        (403, "forbidden", "another one"),
        (404, "404 page not found", "path prefix"),
        (400, "Client sent an HTTP request to an HTTPS server.", "https://"),
        (401, "no org id", "--tenant"),
        (503, "", "wait until"),
        (200, "<html>", "query API"),
        (200, '{"status":"success","data":{"res', "ask again"),
        (500, "query processing would load too many samples into memory", "--selector"),
        (422, "cannot execute: exceeds -search.maxSamplesPerQuery", "--selector"),
    ],
)
def test_each_answer_has_its_own_remedy(status: int, text: str, mend: str) -> None:
    assert mend in refusal_of_answer("http://p", status, text).mend


def test_a_password_that_is_not_taken_is_mended_and_not_given_again() -> None:
    assert Access(username="obs", password="x").identifies and Access(headers={"authorization": "x"}).identifies
    assert not Access(tenant="ml", headers={"X-A": "b"}).identifies
    refusal = refusal_of_answer("http://p", 401, "Unauthorized", known=True)
    assert "does not take this user" in str(refusal) and refusal.mend.startswith("mend --user")


def test_a_redirection_names_where_to_ask() -> None:
    assert refusal_of_answer("http://p", 302, "", "https://p/pre/api/v1/query?query=x").mend == "use https://p/pre"
    assert "sign-in" in refusal_of_answer("http://p", 302, "", "https://login.example/oauth?back=p").mend


@pytest.mark.parametrize(
    ("error", "mend"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate", "--ca-file"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: Hostname mismatch", "name that stands in the certificate"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired", "renew"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", "--cert-file"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "http://"),
        ("[Errno -2] Name or service not known", "host name"),
        ("[Errno 111] Connection refused", "start it"),
        ("timed out", "--selector"),
        ("peer closed connection without sending complete message body", "ask again"),
    ],
)
def test_each_error_has_its_own_remedy(error: str, mend: str) -> None:
    assert mend in refusal_of_error("https://p", OSError(error)).mend


@dataclass
class Tls:
    url: str
    folder: Path


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[Tls]:
    """A server of a site's own authority that wants a password."""
    authority = make(tmp_path, "authority", None)
    make(tmp_path, "server", authority, x509.IPAddress(ipaddress.ip_address("127.0.0.1")))

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            good = self.headers.get("Authorization") == "Basic " + base64.b64encode(b"obs:s3cret").decode()
            found = self.path.startswith("/pre/api/v1/query")
            body = b'{"status": "success", "data": {"resultType": "scalar", "result": [5, "5"]}}' if good and found else b"no"
            self.send_response(200 if good and found else 404 if good else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *unused: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    server.handle_error = lambda *unused: None  # type: ignore[method-assign]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield Tls(f"https://127.0.0.1:{server.server_port}", tmp_path)
    server.shutdown()
    server.server_close()


def test_doctor_and_watch_meet_the_same_server_in_the_same_way(tls: Tls) -> None:
    known = {"ca_file": str(tls.folder / "authority.pem")}
    prefix = f"{tls.url}/pre"
    right = Access(**known, username="obs", password="s3cret")
    assert Server(prefix, access=right).now_s() == 5.0
    PrometheusSource(PrometheusOptions(prefix, access=right))._ask("time()")
    for url, access, mend in (
        (prefix, Access(username="obs", password="s3cret"), "--ca-file"),
        (prefix, Access(**known), "--password-file"),
        (tls.url, right, "path prefix"),
    ):
        with pytest.raises(SourceError) as of_doctor:
            Server(url, access=access).now_s()
        with pytest.raises(SourceError) as of_watch:
            PrometheusSource(PrometheusOptions(url, access=access)).collect(0.0)
        assert mend in of_doctor.value.mend and mend in of_watch.value.mend
