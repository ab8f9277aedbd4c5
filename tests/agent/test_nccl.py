"""What NCCL's Inspector writes while the agent reads: growing, rotated, cut off, not ours, not readable."""

from __future__ import annotations

import json
import logging
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from minder.edge.agent import nccl
from minder.edge.agent.nccl import InspectorFolder
from minder.edge.signals.nccl_inspector import read_inspector

HOST = socket.gethostname()
SIZE = 1 << 20


def line(sequence: int, communicator: str = "0xa", kind: str = "coll", name: str = "AllReduce", size: int = SIZE) -> str:
    """As the plugin's README has it (v4.0)."""
    record = {
        "header": {"id": communicator, "rank": 0, "n_ranks": 8, "nnodes": 1},
        "metadata": {"inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "nccl_profiler_interface",
                     "dump_timestamp_us": 1748030377748202, "hostname": HOST, "pid": 7},
        f"{kind}_perf": {kind: name, f"{kind}_sn": sequence, f"{kind}_msg_size_bytes": size, f"{kind}_exec_time_us": 61974,
                         f"{kind}_timing_source": "kernel_gpu", f"{kind}_algobw_gbs": 277.2, f"{kind}_busbw_gbs": 485.1},
    }  # fmt: skip
    return json.dumps(record) + "\n"


def append(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(lines)


def totals(folder: InspectorFolder) -> tuple[float, float]:
    """Operations and MiB, after one more look."""
    folder.poll()
    counters = folder.read().counters
    return counters["nccl_operations", None], counters["nccl_bytes", None] / SIZE


def test_operations_are_counted_by_their_numbers_also_those_that_the_plugin_left_out(tmp_path: Path) -> None:
    path = tmp_path / f"{HOST}-pid7.log"
    append(path, line(1), line(2))
    folder = InspectorFolder(tmp_path)
    assert totals(folder) == (0, 0), "what was there before is not counted"
    append(path, line(3), line(4))
    assert totals(folder) == (2, 2)
    append(path, line(10))  # it writes the newest one of each interval
    assert totals(folder) == (8, 8)
    append(path, line(1, "0xb"), line(5, "0xb"), line(77, kind="p2p", name="Send"), line(2))  # and a communicator that was made anew
    assert totals(folder) == (15, 15)


def test_a_process_that_begins_later_counts_from_its_first_operation(tmp_path: Path) -> None:
    folder = InspectorFolder(tmp_path / "not-there-yet")
    folder.poll()
    assert not folder.read().counters, "no file is no data, not zero operations"
    (tmp_path / "not-there-yet").mkdir()
    append(tmp_path / "not-there-yet" / f"{HOST}-pid7.log", line(1), line(2))
    assert totals(folder) == (2, 2)


def test_half_a_line_waits_and_a_line_that_never_ends_is_no_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / f"{HOST}-pid7.log"
    path.touch()
    folder = InspectorFolder(tmp_path)
    assert totals(folder) == (0, 0)
    append(path, line(1)[:80])
    assert totals(folder) == (0, 0)
    append(path, line(1)[80:], line(2)[:50])
    assert totals(folder) == (1, 1) and not caplog.records
    append(path, "\n", "noise\n", json.dumps({"header": {"id": "0xa"}, "metadata": {}, "dump_stats": {"dropped": 3}}) + "\n", line(3))
    append(path, line(4, size=-1), line(5).replace('_sn": 5', '_sn": 1e999'))
    assert totals(folder) == (3, 3)
    append(path, "more noise\n")
    folder.poll()
    assert [record.levelno for record in caplog.records] == [logging.WARNING], "told once"


def test_a_file_that_is_rotated_or_emptied_is_followed(tmp_path: Path) -> None:
    path = tmp_path / f"{HOST}-pid7.log"
    path.touch()
    folder = InspectorFolder(tmp_path)
    folder.poll()
    append(path, line(1))
    path.rename(tmp_path / f"{HOST}-pid7.log.1")
    append(tmp_path / f"{HOST}-pid7.log.1", line(2))
    append(path, line(3))
    assert totals(folder) == (3, 3)
    path.write_text("")
    folder.poll()
    append(path, line(4))
    assert totals(folder) == (4, 4)
    path.unlink()
    assert totals(folder) == (4, 4)


def test_only_this_machines_files_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = InspectorFolder(tmp_path, ("node-0007",))
    folder.poll()
    append(tmp_path / "another-pid7.log", line(1))
    folder.poll()
    assert not folder.read().counters
    assert [
        f"no file is named for {' or '.join(sorted({HOST, HOST.partition('.')[0], 'node-0007'}))}" in r.getMessage() for r in caplog.records
    ] == [True]
    append(tmp_path / "node-0007-pid8.log", line(1))
    append(tmp_path / f"{HOST}-pid9.prom", "nccl_bus_bandwidth_gbs 1\n")
    assert totals(folder) == (1, 1)
    folder.follow([7])  # a container's own host name, but a training process of this machine
    assert totals(folder) == (2, 2)


def test_a_file_that_cannot_be_read_is_told_once_and_the_others_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / f"{HOST}-pid6.log").mkdir()  # the user of the tests may read any file
    append(tmp_path / f"{HOST}-pid7.log", line(1))
    folder = InspectorFolder(tmp_path)
    folder.poll()
    append(tmp_path / f"{HOST}-pid7.log", line(2))
    assert totals(folder) == (1, 1)
    assert len(caplog.records) == 1 and f"{HOST}-pid6.log cannot be read: Is a directory" in caplog.text


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_a_folder_without_permission_is_told_once_and_read_when_it_is_mended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir(mode=0o700)
    append(dumps / f"{HOST}-pid7.log", line(1))
    folder = InspectorFolder(dumps)
    for place in (tmp_path, *tmp_path.parents[:-1]):
        place.chmod(place.stat().st_mode | 0o055)
    os.seteuid(65534)
    try:
        folder.poll()
        folder.poll()
        assert "Permission denied" in caplog.text and len(caplog.records) == 1
    finally:
        os.seteuid(0)
    assert totals(folder) == (0, 0), "what was written meanwhile began before the first look"
    append(dumps / f"{HOST}-pid7.log", line(2))
    assert totals(folder) == (1, 1)


def test_a_flood_is_read_in_part_and_counted_by_its_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "_LOOK_BYTES", 20_000)
    monkeypatch.setattr(nccl, "_LEAST_BYTES", 1_000)
    path = tmp_path / f"{HOST}-pid7.log"
    folder = InspectorFolder(tmp_path)
    folder.poll()
    append(path, line(1))
    assert totals(folder) == (1, 1)
    append(path, *(line(number) for number in range(2, 1001)))
    read = []
    monkeypatch.setattr(nccl, "read_inspector", lambda lines: read.append(log := read_inspector(lines)) or log)
    assert totals(folder) == (1000, 1000)
    assert len(read[0].records) < 60 and read[0].skipped == 0


def test_more_files_than_a_machine_has_processes_are_not_all_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = InspectorFolder(tmp_path)
    folder.poll()
    for pid in range(100):
        append(tmp_path / f"{HOST}-pid{pid}.log", line(1))
        os.utime(tmp_path / f"{HOST}-pid{pid}.log", (pid, pid))
    assert totals(folder) == (64, 64)
    append(tmp_path / f"{HOST}-pid99.log", line(2))
    assert totals(folder) == (65, 65)
    assert len(caplog.records) == 1 and "more than 64 files" in caplog.text


WRITER = """
import json, os, socket, sys, time
path = f"{sys.argv[1]}/{socket.gethostname()}-pid{os.getpid()}.log"
with open(path, "w", buffering=700) as log:
    for number in range(1, 100000):
        log.write(sys.argv[2].replace("SEQUENCE", str(number)))
        time.sleep(0.005)
"""


def test_a_real_agent_tells_what_a_real_process_writes_and_stands_when_it_stops(bench: Any, wait: Any, tmp_path: Path) -> None:
    """Through a buffer of 700 bytes, as a plugin's: lines come in pieces."""
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    agent = bench.agent("--nccl-inspector", str(dumps))
    assert "minder_nccl_operations_total" not in agent.metrics()
    writer = bench.python(WRITER, str(dumps), line(1).replace('_sn": 1', '_sn": SEQUENCE'))
    first = agent.wait_metric("minder_nccl_operations_total", lambda value: value > 50)
    agent.wait_metric("minder_nccl_operations_total", lambda value: value > first + 50)
    writer.kill()
    writer.wait()
    (path,) = dumps.iterdir()
    whole = path.read_text().count("\n")
    agent.wait_metric("minder_nccl_operations_total", lambda value: value == whole)
    assert agent.metrics()["minder_nccl_bytes_total"] == whole * SIZE
    assert agent.metrics()["minder_agent_errors_total"] == 0


def test_the_folder_may_come_from_the_environment(bench: Any, tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    agent = bench.agent(env={"MINDER_AGENT_NCCL_INSPECTOR": str(dumps)})
    append(dumps / f"{HOST}-pid7.log", line(1))
    agent.wait_metric("minder_nccl_operations_total", lambda value: value == 1)
