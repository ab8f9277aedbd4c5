from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from minder.cli import main
from minder.model.evidence import Verdict
from minder.record.incidents import Ledger, kinds


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    with Ledger(path) as opened:
        registered = {"machines": ["m1", "m2"], "standbys": [], "domains": {"m2": {"rack": "r7"}}, "serials": {"m2": "SN-1", "m1": "SN-0"}}
        opened.append(kinds.JOB_REGISTERED, registered, job="llm", time_s=1.0)
        verdict = Verdict(10.0, "machine", "evict", ("m2",), "explicit", 0.99, 9.0)
        name = opened.open_incident(verdict, job="llm", time_s=10.0)
        data = {"kernel": ["NVRM: Xid (PCI:0000:3b:00): 79, token=hunter22, next to m1"]}
        opened.append(kinds.EVIDENCE, {"machine": "m2", "what": "evidence", "data": data}, job="llm", incident=name, time_s=11.0)
    return path


def test_a_bundle_is_written_with_place_and_serial_and_is_the_same_each_time(ledger: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    for path in (first, second):
        assert main(["incidents", "bundle", "llm-1", "-o", str(path), "--ledger", str(ledger)]) == 0
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        assert json.loads(archive.read("machines.json")) == {"m2": {"rack": "r7", "serial": "SN-1"}}
        (capture,) = [name for name in archive.namelist() if name.startswith("captures/")]
        text = archive.read(capture).decode()
    assert "Xid (PCI:0000:3b:00): 79" in text and "hunter22" not in text and "peer-1" in text


@pytest.mark.parametrize(("incident", "folder", "expected"), [("llm-1", "no", "cannot be written"), ("llm-9", ".", "llm-9")])
def test_what_cannot_be_written_is_told_in_one_line(
    ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], incident: str, folder: str, expected: str
) -> None:
    assert main(["incidents", "bundle", incident, "-o", str(tmp_path / folder / "a.zip"), "--ledger", str(ledger)]) == 2
    said = capsys.readouterr().err
    assert expected in said and len(said.splitlines()) == 1
