"""What every test may rely on: a test that needs something the machine lacks is skipped, with the reason, and a run that leaves
processes behind fails."""

from __future__ import annotations

import os
import shutil
import time
import uuid

import psutil
import pytest

NODE_EXPORTERS = ("prometheus-node-exporter", "node_exporter")
RUN_VARIABLE = "MINDER_TEST_RUN"
PATIENCE_S = 5.0


def missing_server(needed: tuple[str, ...]) -> str | None:
    """Why a test marked `server(*needed)` cannot run here, or None. Without names it needs Prometheus."""
    for name in needed or ("prometheus",):
        candidates = NODE_EXPORTERS if name in NODE_EXPORTERS else (name,)
        if not any(shutil.which(candidate) for candidate in candidates):
            return f"needs {candidates[0]} on the PATH (Debian: apt-get install {candidates[0]})"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    server = item.get_closest_marker("server")
    if server is not None and (reason := missing_server(server.args)):
        pytest.skip(reason)
    if item.get_closest_marker("root") is not None and os.geteuid() != 0:
        pytest.skip("needs root, for network namespaces and cgroups")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Every process that a test starts inherits this mark, also one that runs in a session of its own."""
    os.environ[RUN_VARIABLE] = uuid.uuid4().hex


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
