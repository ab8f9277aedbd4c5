"""Flight Recorder dumps that the agents sent, as suspects."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from minder.diagnose.flight_recorder.analyse import analyse
from minder.diagnose.flight_recorder.dumpfile import UnreadableDumpError, load_dump
from minder.diagnose.flight_recorder.folder import collect
from minder.diagnose.flight_recorder.records import RankDump, Signatures
from minder.diagnose.flight_recorder.suspects import suspects_from_collectives
from minder.model.errors import WireError
from minder.model.evidence import Suspect
from minder.model.topology import Parallelism

__all__ = ["judge_dumps"]

_Answers = Mapping[str, Mapping[str, Any] | WireError]


def judge_dumps(
    answers: _Answers, rank_machine: Mapping[int, str], parallelism: Parallelism | None, since_s: float, time_s: float
) -> tuple[Suspect, ...]:  # fmt: skip
    """What the dumps of all machines say together; nobody where fewer than two ranks left one.

    since_s: when the job last moved. A dump from before that was not asked for in vain: its rank is missing, since what it has
    launched afterwards is not in it. Ranks on machines that do not answer are missing as well.
    """
    signatures = Signatures()
    dumps: dict[int, RankDump] = {}
    missing = dict.fromkeys(rank_machine, "no dump")
    for machine, answer in answers.items():
        if isinstance(answer, WireError):
            continue
        ahead_s = float(answer.get("time_s", 0.0)) - float(answer.get("_received_s", answer.get("time_s", 0.0)))  # of that machine's clock
        for row in answer.get("dumps", ()):
            rank = row.get("rank")
            if rank_machine.get(rank) != machine or rank in dumps:
                continue
            try:
                dumps[rank] = _read(row, rank, signatures, since_s + ahead_s)
                missing.pop(rank, None)
            except UnreadableDumpError as error:
                missing[rank] = str(error)
    if len(dumps) < 2:
        return ()
    collection = collect(dumps.values(), signatures, missing, parallelism)
    return suspects_from_collectives(collection, analyse(collection), time_s, rank_machine)


def _read(row: Mapping[str, Any], rank: int, signatures: Signatures, since_s: float) -> RankDump:
    if row.get("format") != "fr-pickle":
        raise UnreadableDumpError(str(row.get("data") or "no dump")[:160])
    if float(row.get("time_s") or 0.0) < since_s:
        raise UnreadableDumpError("it did not answer; its last dump is older than the stall")
    try:
        data = base64.b64decode(str(row.get("data")), validate=True)
    except binascii.Error as error:
        raise UnreadableDumpError("the agent sent something that is no dump") from error
    return load_dump(data, rank, signatures, f"rank {rank}", float(row.get("since_s") or 0.0))
