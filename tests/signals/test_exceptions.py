# ruff: noqa: E501
"""Whose an exception is: every row of exception_rules.toml, the handed cases, and texts that look like something else."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from minder.edge.signals.exceptions import classify_exception, load_exception_rules

CASES = Path(__file__).parent / "data" / "exceptions"
EXAMPLES = [(rule.name, rule.kind, example) for rule in load_exception_rules() for example in rule.examples]


@pytest.mark.parametrize(("rule", "kind", "example"), EXAMPLES, ids=[f"{rule}-{place}" for place, (rule, _, _) in enumerate(EXAMPLES)])
def test_each_row_decides_its_own_examples(rule: str, kind: str, example: tuple[str, ...]) -> None:
    type_name, message, *rest = example
    number = getattr(errno, rest[0]) if rest else None
    found = classify_exception(type_name, message, errno=number, disk=rest[1] if len(rest) > 1 else None)  # type: ignore[arg-type]
    assert (found.rule, found.kind) == (rule, kind)


def test_every_row_has_an_example() -> None:
    assert [rule.name for rule in load_exception_rules() if not rule.examples] == []


def test_the_handed_cases_are_decided_as_expected() -> None:
    rows = [json.loads(line) for line in (CASES / "exceptions.jsonl").read_text().splitlines()]
    expected = {"machine": "machine", "job": "program", "victim": "victim"}
    wanted = [expected[word] for word in json.loads((CASES / "expected.json").read_text())]
    assert [classify_exception(row["type"], row["message"]).kind for row in rows] == wanted


PUBLIC = [json.loads(line) for line in (CASES / "public.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("row", PUBLIC, ids=[row["source"] or f"own-{place}" for place, row in enumerate(PUBLIC)])
def test_texts_of_public_threads_and_names_that_sound_like_faults(row: dict[str, str]) -> None:
    assert classify_exception(row["type"], row["message"]).kind == row["kind"]


@pytest.mark.parametrize(
    ("type_name", "message", "kind"),
    [
        ("RuntimeError", "hardware is fine, the maxidxs are not", "unknown"),  # no Xid inside a word
        ("RuntimeError", "CUDA error: an illegal memory access was encountered", "unknown"),
        ("AcceleratorError", "CUDA error: unspecified launch failure", "unknown"),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", "unknown"),
        ("RuntimeError", "CUDA error: initialization error", "unknown"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/scratch/data/shard-17.bin'", "unknown"),
        ("OSError", "[Errno 5] Input/output error", "unknown"),  # whose disk is not known
        ("RuntimeError", "DataLoader worker (pid 4211) is killed by signal: Killed.", "unknown"),  # by whom is not known
        ("CustomError", "something else", "unknown"),
        ("RuntimeError", "The following operation failed: NCCL WARN Cuda failure 'peer access is not supported between these two devices'", "program"),
        ("ncclSystemError", "socketStartConnect: Connect to 10.0.0.3<51000> failed : Connection refused", "unknown"),
        ("DistBackendError", "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.", "unknown"),
        ("DistBackendError", "ncclSystemError: System call failed\nLast error:\nsocketStartConnect: Connect to 10.0.0.3<51000> failed : Connection refused", "victim"),
        ("torch.distributed.DistNetworkError", "The client socket has failed to connect to any network address of (node-1, 29500).", "victim"),
        ("RuntimeError", "[rank2]:[E ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)", "victim"),
        ("ray.exceptions.ActorDiedError", "The actor died because its node has died.", "victim"),
        ("RuntimeError", "CUDA error: unknown error", "unknown"),
        ("torch.cuda.OutOfMemoryError", "HIP out of memory. Tried to allocate 20.00 MiB", "program"),
        ("RuntimeError", "CUDNN_BACKEND_OPERATION: cudnnFinalizeFailed cudnn_status: CUDNN_STATUS_BAD_PARAM", "program"),
        ("RuntimeError", "nvmlDeviceGetHandleByPciBusId() failed: GPU is lost", "machine"),
        ("RuntimeError", "CUDA error: uncorrectable ECC error encountered\nCompile with TORCH_USE_CUDA_DSA", "machine"),
        ("RuntimeError", "skipping sample: text contained 'GPU has fallen off the bus' but no label", "unknown"),  # a text of the data
        ("RuntimeError", "bad setting: inject_fault='uncorrectable ECC error'", "unknown"),
        ("RuntimeError", "cuStreamSynchronize failed with 'CUDA_ERROR_ECC_UNCORRECTABLE'", "machine"),  # the library's own quotation
        ("RuntimeError", "CUDA failure 214 ('uncorrectable ECC error encountered') in attention.cu", "machine"),
        ("RuntimeError", "Rank 0 saw remote failure: CUDA error: uncorrectable ECC error encountered (reported by node-17)", "victim"),
        ("RuntimeError", "worker 12 failed on node n7: GPU is lost", "victim"),
        ("RuntimeError", "peer node n12 reported: GPU is lost", "victim"),
        ("torch.distributed.checkpoint.api.CheckpointException", "ranks:dict_keys([3])\nTraceback: (RANK 3)\nOSError: [Errno 5] Input/output error", "victim"),
        ("RuntimeError", "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)", "program"),
        ("KeyError", "'DBE'", "program"),  # Python's own mistakes quote keys, names and values
        ("ValueError", "unknown noise model DBE, choose one of A, B", "program"),
        ("AttributeError", "module 'errors' has no attribute 'DeviceLost'", "program"),
        ("pynvml.NVMLError_Memory", "Insufficient memory", "program"),
        ("RuntimeError", "nvmlInit failed: NVML_ERROR_MEMORY", "program"),
        ("RuntimeError", "nvmlInit failed: NVML_ERROR_DRIVER_NOT_LOADED", "unknown"),
        ("EOFError", "Ran out of input", "unknown"),
        ("EOFError", "", "victim"),
        ("RuntimeError", "CUDA error: context is destroyed", "victim"),
        ("vllm.v1.engine.exceptions.EngineDeadError", "EngineCore encountered an issue.", "victim"),
        ("RuntimeError", "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time", "victim"),
        ("PermissionError", "[Errno 13] Permission denied: '/ckpt'", "program"),
        ("torch._C._LinAlgError", "linalg.cholesky: the input is not positive-definite", "program"),
        ("RuntimeError", "CUDA error: operation failed due to a previous error during capture", "program"),
    ],
)  # fmt: skip
def test_texts_of_other_libraries_and_versions(type_name: str, message: str, kind: str) -> None:
    assert classify_exception(type_name, message).kind == kind


def test_a_code_of_either_cause_is_part_of_the_identity() -> None:
    cuda = classify_exception("RuntimeError", "CUDA error: an illegal memory access was encountered\nmore")
    hip = classify_exception("RuntimeError", "HIP error: an illegal memory access was encountered")
    assert (cuda.library, cuda.code) == ("device", "an illegal memory access was encountered") == (hip.library, hip.code)
    assert classify_exception("RuntimeError", "ncclInternalError: Internal check failed.").code == "ncclinternalerror"
