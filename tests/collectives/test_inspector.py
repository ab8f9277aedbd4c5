"""NCCL Inspector's log: records, and lines that are none."""

from __future__ import annotations

import json

from minder.edge.signals.nccl_inspector import read_inspector

RECORD = {
    "header": {"id": "0x7f8c496ae9f661", "rank": 2, "n_ranks": 8, "nnodes": 1},
    "metadata": {"inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "nccl_profiler_interface",
                 "dump_timestamp_us": 1748030377748202, "hostname": "example", "pid": 1639453},
    "coll_perf": {"coll": "AllReduce", "coll_sn": 1407, "coll_msg_size_bytes": 17179869184, "coll_exec_time_us": 61974,
                  "coll_algobw_gbs": 277.210914, "coll_busbw_gbs": 485.119099},
}  # fmt: skip


def test_a_record_is_read() -> None:
    (record,) = read_inspector([json.dumps(RECORD) + "\n"]).records
    assert (record.communicator, record.rank, record.operation, record.sequence) == ("0x7f8c496ae9f661", 2, "AllReduce", 1407)
    assert record.size_bytes == 17179869184


def test_lines_that_are_no_record_are_counted() -> None:
    lines = [json.dumps(RECORD)[:-30], "", "noise", "[1]", json.dumps({"header": {}}), json.dumps(RECORD)]
    log = read_inspector(lines)
    assert (len(log.records), log.skipped) == (1, 4)
