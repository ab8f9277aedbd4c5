"""What every test may rely on: a test that needs something the machine lacks is skipped, with the reason, and a run that leaves
processes behind fails."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

# Before numpy and torch look: threads of theirs wait for one another in a loop, beside tests that want the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

PACKAGES = {"systemd-nspawn": "systemd-container"}  # Debian's, where they are not called like the command
NODE_EXPORTERS = ("prometheus-node-exporter", "node_exporter")
RUN_VARIABLE = "MINDER_TEST_RUN"
PATIENCE_S = 5.0
FAILED = pytest.StashKey[bool]()


def missing_server(needed: tuple[str, ...]) -> str | None:
    """Why a test marked `server(*needed)` cannot run here, or None. Without names it needs Prometheus."""
    for name in needed or ("prometheus",):
        if name == "postgresql":
            if reason := missing_postgresql():
                return reason
            continue
        if name == "ray":
            if importlib.util.find_spec("ray") is None:
                return "needs Ray (pip install 'minder-cluster[ray]')"
            continue
        if name == "kubernetes":
            from minder.simulate.lab.kubernetes import missing_programs

            if reason := missing_programs():
                return reason
            continue
        candidates = NODE_EXPORTERS if name in NODE_EXPORTERS else (name,)
        if not any(shutil.which(candidate) for candidate in candidates):
            return f"needs {candidates[0]} on the PATH (Debian: apt-get install {PACKAGES.get(name, candidates[0])})"
    return None


def missing_postgresql() -> str | None:
    if postgresql_command("initdb") is None or postgresql_command("pg_ctl") is None:
        return "needs PostgreSQL's initdb and pg_ctl (Debian: apt-get install postgresql)"
    if importlib.util.find_spec("psycopg") is None:
        return "needs psycopg (pip install 'minder-cluster[postgres]')"
    return None


def postgresql_command(name: str) -> str | None:
    """Debian keeps the server's commands off the PATH, by version."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name)
    return shutil.which(name, path=os.pathsep.join([*map(str, reversed(versions)), os.environ.get("PATH", "")]))


class PostgresServer:
    """A server of our own on loopback, in a new folder, run by somebody who is not root: it refuses to run as root."""

    def __init__(self) -> None:
        self._user = None if os.geteuid() != 0 else next(name for name in ("postgres", "nobody") if _is_user(name))
        self.folder = Path(tempfile.mkdtemp(prefix="minder-postgres-", dir="/tmp"))  # not tmp_path: that user must get there
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._databases = 0

    def start(self) -> None:
        data = self.folder / "data"
        if not data.exists():
            self._call("initdb", "-D", str(data), "-U", "minder", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        flags = f"-c listen_addresses=127.0.0.1 -p {self.port} -c unix_socket_directories={self.folder} -c fsync=off"
        self._call("pg_ctl", "-D", str(data), "-w", "-t", "120", "-l", str(self.folder / "log"), "-o", flags, "start")

    def stop(self) -> None:
        self._call("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_database(self) -> str:
        """Its URL."""
        import psycopg

        self._databases += 1
        name = f"ledger{self._databases}"
        with psycopg.connect(f"postgresql://minder@127.0.0.1:{self.port}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql://minder@127.0.0.1:{self.port}/{name}"

    def _call(self, name: str, *arguments: str) -> None:
        command = [str(postgresql_command(name)), *arguments]
        with (self.folder / "calls").open("a") as output:  # no pipe: the server would keep it open
            done = subprocess.run(
                command, user=self._user, cwd=self.folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL, check=False
            )
        assert done.returncode == 0, (self.folder / "calls").read_text()[-2000:]


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
        server.stop()
    finally:
        server.remove()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """small_disk("1m"): a file system of its own of that size."""
    mounted: list[Path] = []

    def mount(size: str) -> Path:
        disk = tmp_path / f"disk-{size}"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], capture_output=True, check=False).returncode:
            pytest.skip("no tmpfs can be mounted here")
        mounted.append(disk)
        return disk

    yield mount
    for disk in mounted:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server("postgresql"))])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty ledger may be: a file, and the URL of a real PostgreSQL."""
    return str(tmp_path / "ledger.db") if request.param == "sqlite" else request.getfixturevalue("postgres").new_database()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    server = item.get_closest_marker("server")
    if server is not None and (reason := missing_server(server.args)):
        pytest.skip(reason)
    for marker in item.iter_markers("package"):
        for name in marker.args:
            if importlib.util.find_spec(name) is None:
                pytest.skip(f"needs the Python package {name}, of an extra")
    if item.get_closest_marker("root") is not None and os.geteuid() != 0:
        pytest.skip("needs root, for network namespaces and cgroups")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Every process that a test starts inherits this mark, also one that runs in a session of its own.

    A test's agent of the whole host reads no kernel log: labs beside it write errors into the host's. A lab's agents read that one, and
    take what names a process of theirs.
    """
    os.environ[RUN_VARIABLE] = uuid.uuid4().hex
    os.environ["MINDER_AGENT_KERNEL_LOG"] = os.devnull


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collection drops nothing worth a search for garbage; later each full search would walk the 650,000 objects of the modules again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)  # a twentieth of a run went into searches after each 700 objects
        gc.enable()


def processes_of_this_run() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.pid != os.getpid() and process.environ().get(RUN_VARIABLE) == os.environ[RUN_VARIABLE]
            if ours and process.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """A test that failed half-way may leave what it never came to end: its next attempt starts without that."""
    try:
        yield
    finally:
        folder = getattr(item, "funcargs", {}).get("tmp_path")
        if item.stash.get(FAILED, False) and folder is not None:
            item.stash[FAILED] = False
            for process in processes_of_this_run():
                with contextlib.suppress(psutil.Error):
                    if str(folder) in " ".join(process.cmdline()):
                        process.kill()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why a test had to be run again: without that nobody mends it."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"first attempt of {report.nodeid}", sep="-")
        terminalreporter.line("\n".join(str(report.longreprtext).splitlines()[-40:]))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (left := processes_of_this_run()) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in left:
        try:
            print(f"\nleft behind by a test, ended now: {process.pid} {' '.join(process.cmdline())[:200]}")
            process.kill()
        except psutil.Error:
            continue
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="module", autouse=True)
def own_mlflow() -> None:
    """MLflow keeps where it logs to in the environment of its process: no module logs where the one before it did."""
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        del os.environ[name]


@pytest.fixture(scope="session", autouse=True)
def light_ledgers() -> Iterator[pytest.MonkeyPatch]:
    from tests.light_ledgers import lighten

    with pytest.MonkeyPatch.context() as patch:
        lighten(patch)
        yield patch


@pytest.fixture(scope="session")
def load_file() -> Callable[[Path], ModuleType]:
    """A file of the tests as a module, once (test folders are no packages)."""

    def load(path: Path) -> ModuleType:
        name = f"minder_test_{path.parent.name}_{path.stem}"
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None and spec.loader is not None
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
        return sys.modules[name]

    return load


@pytest.fixture
def tab() -> Iterator[Any]:
    """A page of a real browser; its errors are kept in `tab.troubles`."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra dev")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(60_000)
        page.troubles = []
        page.on("pageerror", lambda error: page.troubles.append(str(error)))
        yield page
        browser.close()
