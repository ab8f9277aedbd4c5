"""A version of a job's code on its way into a service's store: offered as a list, then what is missing, in pieces."""

from __future__ import annotations

import base64
from pathlib import Path

from minder.record.api.jobs import CodeState
from minder.record.client.calls import Calls
from minder.wire.code_store import CHUNK_BYTES
from minder.wire.code_tree import CodeFile, read_tree

__all__ = ["send_code"]


def send_code(calls: Calls, job: str, folder: Path) -> str:
    """Returns its digest. Raises BadInputError for a folder that is no version of a job's code, and where the service refuses."""
    tree = read_tree(folder)
    files, known = {"files": tree.rows()}, {item.sha256: item for item in tree.files}
    state = CodeState.model_validate(calls.post(f"/v1/jobs/{job}/code", json=files))
    for sha256 in state.missing:
        _send(calls, job, folder, known[sha256])
    return CodeState.model_validate(calls.post(f"/v1/jobs/{job}/code", json=files)).code if state.missing else state.code


def _send(calls: Calls, job: str, folder: Path, item: CodeFile) -> None:
    file = {"path": item.path, "size_bytes": item.size_bytes, "sha256": item.sha256, "executable": item.executable}
    with (folder / item.path).open("rb") as stream:
        for offset in range(0, max(1, item.size_bytes), CHUNK_BYTES):
            data = base64.b64encode(stream.read(CHUNK_BYTES)).decode()
            calls.post(f"/v1/jobs/{job}/code/pieces", json={"file": file, "offset": offset, "data": data})
