"""Without its programs the local Kubernetes says which one is missing and where it comes from, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from minder.model.errors import LabError
from minder.simulate.lab.kubernetes import PROGRAMS, LocalKubernetes, missing_programs


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINDER_KUBERNETES", str(tmp_path))
    told = f"needs kube-apiserver in {tmp_path} (.ci/kubernetes builds it from Debian's source)"
    assert missing_programs() == told
    with pytest.raises(LabError, match=r"no Kubernetes can be started here: needs kube-apiserver"), LocalKubernetes(tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()
    for name in PROGRAMS:
        (tmp_path / name).touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing_programs() == "needs etcd on the PATH (Debian: apt-get install etcd-server openssl)"
