"""A worker's GPU: started before there is a rank; what a generation holds of it, communicators that hang with a silent peer, kernels,
memory. torch is never loaded for it."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

__all__ = ["abort_device_groups", "allocated_bytes", "allow_abort", "device_groups", "free_device", "holds_too_much", "start_device"]

_ABORT_LIMIT_S = 2.0
_REPORTED_BYTES = 64 << 20
_MOST_LEFT = 0.1  # of the GPU's memory


def allow_abort() -> None:
    """For a process that outlives its NCCL groups; call it before the first one is made. What the job has set itself stays.

    torch's watchdog ends the process when a collective fails or a communicator is aborted under it. Here the launcher decides: it
    interrupts the generation, and ends the process where that does not help.
    """
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    os.environ.setdefault("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0")


def start_device(index: int) -> str:
    """Initialise a GPU for this process, with its allocator and cuBLAS, which takes seconds: a standby has them behind it when ranks come.
    It becomes the current one. Why it cannot be done, "" if it is."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return "torch is not installed"
    try:
        torch.cuda.set_device(index)
        square = torch.ones(8, 8, device="cuda")
        answer = float((square @ square).sum())
    except (RuntimeError, AssertionError) as error:  # no driver, no such device, a device that fails; a torch without CUDA
        return f"{type(error).__name__}: {(str(error).splitlines() or ['no reason given'])[0]}"
    return "" if answer == 512.0 else f"the sum of a product of ones is {answer} instead of 512"


def abort_device_groups() -> bool:
    """Abort every NCCL communicator, so that its kernels end and the main thread comes back. False if one hangs for two seconds.

    All at once, each in a thread: the abort of one may wait for another, and sockets must be cut even where one hangs.
    """
    threads = [threading.Thread(target=_abort, args=(found,), name="minder-abort", daemon=True) for found in _device_backends()]
    for thread in threads:
        thread.start()
    end_s = time.monotonic() + _ABORT_LIMIT_S
    for thread in threads:
        thread.join(max(0.0, end_s - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def free_device(limit_s: float) -> bool:
    """Wait for the GPU's kernels, then give its cached memory back. False where it does not answer within limit_s, or answers with an
    error: a CUDA error stays in the process for ever. True where no GPU is in use."""
    cuda: Any = sys.modules.get("torch.cuda")
    if cuda is None or not cuda.is_initialized():
        return True
    device, answered = cuda.current_device(), threading.Event()

    def ask() -> None:
        try:
            cuda.synchronize(device)
            clear_workspaces = getattr(sys.modules.get("torch._C"), "_cuda_clearCublasWorkspaces", None)
            if clear_workspaces is not None:
                clear_workspaces()  # cuBLAS's own: 64 MiB and more that are no tensor's
            cuda.empty_cache()
        except RuntimeError as error:
            print(f"minder: GPU {device}: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
            return
        answered.set()

    thread = threading.Thread(target=ask, name="minder-device", daemon=True)
    thread.start()
    thread.join(limit_s)
    return answered.is_set()


def allocated_bytes() -> int:
    """Memory of the current GPU that tensors of this process hold; 0 where no GPU is in use."""
    cuda: Any = sys.modules.get("torch.cuda")
    return 0 if cuda is None or not cuda.is_initialized() else int(cuda.memory_allocated())


def holds_too_much(before: int) -> bool:
    """Whether a generation that is over holds more than a tenth of the GPU's memory, beyond the bytes that were held before it: the next
    one may not fit beside it. What it leaves is printed."""
    cuda: Any = sys.modules.get("torch.cuda")
    left = allocated_bytes() - before
    if cuda is None or left < _REPORTED_BYTES:
        return False
    print(f"minder: the old generation still holds {left >> 20} MiB of the GPU", file=sys.stderr, flush=True)
    return left > _MOST_LEFT * float(cuda.get_device_properties(cuda.current_device()).total_memory)


def device_groups() -> list[Any]:
    """The process groups of this process, half made ones too."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return []
    return list(getattr(getattr(distributed.distributed_c10d, "_world", None), "pg_map", {}))


def _device_backends() -> list[Any]:
    """Of each group what serves its GPU tensors, where that is NCCL: a gloo group comes back when its sockets are cut. The group's own
    name says nothing: one made without a backend serves each device by another."""
    torch: Any = sys.modules.get("torch")
    found = []
    for group in device_groups():
        try:
            backend = group._get_backend(torch.device("cuda"))
        except (RuntimeError, ValueError, AttributeError):  # it has none, or is half made
            continue
        backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
        if "NCCL" in type(backend).__name__:
            found.append(backend)
    return found


def _abort(backend: Any) -> None:
    try:
        backend.abort()
    except (RuntimeError, ValueError, AttributeError) as error:  # half made or half gone
        print(f"minder: abort: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
