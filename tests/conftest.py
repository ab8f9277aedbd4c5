"""What every test may rely on: tests that need something the machine lacks are skipped, with the reason."""

from __future__ import annotations

import os
import shutil

import pytest

NODE_EXPORTERS = ("prometheus-node-exporter", "node_exporter")


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
