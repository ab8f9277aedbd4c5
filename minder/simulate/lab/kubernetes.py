"""A real Kubernetes control plane of our own on this machine: etcd, API server, controllers and scheduler, on loopback only, no root.

Programs: Debian's etcd-server, and kube-apiserver, kube-controller-manager and kube-scheduler as `.ci/kubernetes` builds them, in
$MINDER_KUBERNETES or ~/.cache/minder/kubernetes. There is no kubelet: `kubelets` stands in for it. Everything started ends with it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from pathlib import Path

from minder.act.actuators.kubernetes.calls import KubernetesCalls
from minder.model.errors import ActuatorError, LabError
from minder.simulate.lab.daemons import LocalDaemons, free_ports

__all__ = ["PROGRAMS", "LocalKubernetes", "missing_programs"]

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_CONTROLLERS = "job,disruption,nodelifecycle,podgc,namespace"
_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters:
- {{name: lab, cluster: {{server: "https://127.0.0.1:{port}", certificate-authority: {certificate}}}}}
users:
- {{name: me, user: {{token: {token}}}}}
contexts:
- {{name: lab, context: {{cluster: lab, user: me}}}}
current-context: lab
"""


def _cache() -> Path:
    answer = os.environ.get("MINDER_KUBERNETES")
    return Path(answer) if answer else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minder" / "kubernetes"


def missing_programs() -> str:
    """Why no Kubernetes can be started here, "" if it can."""
    missing = [name for name in PROGRAMS if not (_cache() / name).exists()]
    if missing:
        return f"needs {missing[0]} in {_cache()} (.ci/kubernetes builds it from Debian's source)"
    missing = [name for name in ("etcd", "openssl") if shutil.which(name) is None]
    return f"needs {missing[0]} on the PATH (Debian: apt-get install etcd-server openssl)" if missing else ""


class LocalKubernetes(LocalDaemons):
    """`with LocalKubernetes(folder) as cluster`: the API server answers. `kubeconfig`: of its administrator.

    grace_s: how long a node may be silent before it is not ready. Raises LabError where it cannot be started.
    """

    MARK = "MINDER_LOCAL_KUBERNETES"

    def __init__(self, folder: Path, grace_s: int = 3600) -> None:
        super().__init__(folder)
        self._grace_s = grace_s
        self._port = 0

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "admin.yaml"

    def calls(self, deadline_s: float = 20.0, kubeconfig: Path | None = None) -> KubernetesCalls:
        return KubernetesCalls(deadline_s, str(kubeconfig or self.kubeconfig))

    def write_kubeconfig(self, name: str, token: str) -> Path:
        """For another user, by their token."""
        path = self.folder / f"{name}.yaml"
        path.touch(mode=0o600)
        path.write_text(_KUBECONFIG.format(port=self._port, certificate=self.folder / "certificates" / "apiserver.crt", token=token))
        return path

    def service_account(self, namespace: str, name: str) -> Path:
        """A kubeconfig with a token of a service account that exists."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return self.write_kubeconfig(name, str(self.calls().call("POST", path, body)["status"]["token"]))

    def signal_server(self, number: int) -> None:
        """To the API server."""
        self._processes["kube-apiserver"].send_signal(number)

    def _start(self) -> None:
        missing = missing_programs()
        if missing:
            raise LabError(f"no Kubernetes can be started here: {missing}")
        self.folder.mkdir(parents=True, exist_ok=True)
        etcd, peers, self._port, controllers, scheduler = free_ports(5)
        token = secrets.token_hex(16)
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f'{token},admin,admin,"system:masters"\n')
        self._spawn("etcd", ["etcd", *_etcd_flags(self.folder, etcd, peers)])
        self._make_keys()
        self._spawn("kube-apiserver", [str(_cache() / "kube-apiserver"), *self._server_flags(etcd)])
        self.write_kubeconfig("admin", token)
        self._await_server()
        common = [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--port=0", "--bind-address=127.0.0.1"]
        certificates = f"--cert-dir={self.folder / 'certificates'}"
        more = [f"--controllers={_CONTROLLERS}", f"--node-monitor-grace-period={self._grace_s}s", f"--secure-port={controllers}"]
        self._spawn("kube-controller-manager", [str(_cache() / "kube-controller-manager"), *common, certificates, *more])
        self._spawn("kube-scheduler", [str(_cache() / "kube-scheduler"), *common, certificates, f"--secure-port={scheduler}"])

    def _make_keys(self) -> None:
        """What service accounts' tokens are signed with."""
        key, public = self.folder / "accounts.key", self.folder / "accounts.pub"
        try:
            subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
            subprocess.run(["openssl", "rsa", "-in", str(key), "-pubout", "-out", str(public)], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise LabError(f"openssl makes no key: {error}") from error

    def _server_flags(self, etcd: int) -> list[str]:
        return [
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder / 'certificates'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://lab.invalid",
            "--api-audiences=https://lab.invalid",
            f"--service-account-key-file={self.folder / 'accounts.pub'}",
            f"--service-account-signing-key-file={self.folder / 'accounts.key'}",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # an endpoint may not be a loopback address
            "--disable-admission-plugins=ServiceAccount",
        ]

    def _await_server(self, limit_s: float = 60.0) -> None:
        end_s, answer = time.monotonic() + limit_s, ""
        while time.monotonic() < end_s:
            died = next((name for name, process in self._processes.items() if process.poll() is not None), None)
            if died is not None:
                raise LabError(f"{died} ended: see {self.folder / died}.out")
            try:
                self.calls(2.0).call("GET", "/api/v1/namespaces/default")  # there only once the server has begun its work
                return
            except ActuatorError as error:
                answer = str(error)
            time.sleep(0.1)
        raise LabError(f"the API server does not answer after {limit_s:.0f} s: {answer}")


def _etcd_flags(folder: Path, port: int, peers: int) -> list[str]:
    here, among = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
    flags = [f"--data-dir={folder / 'etcd'}", f"--listen-client-urls={here}", f"--advertise-client-urls={here}"]
    return [*flags, f"--listen-peer-urls={among}", f"--initial-advertise-peer-urls={among}", f"--initial-cluster=default={among}"]
