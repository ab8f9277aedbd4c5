# ruff: noqa: E501
"""Messages as gloo, NCCL, the store and Python really write them: who is a victim, and which bug is the same on all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minder.edge.worker.failures import Interrupted, NonFiniteGradient, disk_of, fingerprint, is_victim, traceback_tail

GLOO = "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/"
VICTIMS = [
    ("RuntimeError", GLOO + "pair.cc:553] Connection closed by peer [127.0.0.1]:39089. This is typically caused by a remote worker crashing."),
    ("RuntimeError", GLOO + "pair.cc:547] Read error [10.0.0.3]:5011: Connection reset by peer"),
    ("RuntimeError", GLOO + "pair.cc:419] writev [10.77.0.3]:61114: Broken pipe"),
    ("RuntimeError", GLOO + "unbound_buffer.cc:81] Timed out waiting 10000ms for recv operation to complete"),
    ("RuntimeError", GLOO + "buffer.cc:78] Timed out waiting 1800000ms for send operation to complete"),
    ("RuntimeError", "Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:145] no error"),
    ("RuntimeError", "Application timeout caused pair closure"),
    ("RuntimeError", "[../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection timed out"),
    ("DistBackendError", "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=91, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600410 ms before timing out."),
    ("DistBackendError", "NCCL error in: ProcessGroupNCCL.cpp:2006, remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer node17<41022>"),
    ("DistBackendError", "NCCL error: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. Last error: socketPollConnect: connect to 10.0.0.9<43215> returned Connection refused"),
    ("RuntimeError", "NCCL communicator was aborted on rank 5. Original reason for failure was: [Rank 5] Watchdog caught collective operation timeout"),
    ("DistNetworkError", "The client socket has failed to connect to any network address of (10.0.0.1, 29500)."),
    ("DistNetworkError", "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?"),
    ("DistStoreError", "wait timeout after 300000ms, keys: /default_pg/0//worker_count"),
    ("RuntimeError", "Socket Timeout"),
    ("RuntimeError", "[c10d] recvValue failed on SocketImpl(fd=4, addr=[localhost]:48122): Connection reset by peer"),
    ("ConnectionResetError", "[Errno 104] Connection reset by peer"),
    ("BrokenPipeError", "[Errno 32] Broken pipe"),
    ("torch.distributed.DistBackendError", "[Rank 0] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer"),
    ("RuntimeError", "RPC ran for more than set timeout (60000 ms) and will now be marked with an error: rpc timed out"),
    ("RuntimeError", "eof (this error originated at tensorpipe/transport/shm/connection_impl.cc:259): rpc connection closed, EOF: end of file"),
    ("RuntimeError", "Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 2."),
    ("SignalException", "Process 4711 got signal: 15"),
    ("OSError", "[Errno 113] No route to host"),
]  # fmt: skip
OWN = [
    ("RuntimeError", "CUDA error: an illegal memory access was encountered"),
    ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 GiB"),
    ("RuntimeError", "CUDA out of memory while NCCL communicator was aborted"),
    ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (8x50 and 40x10)"),
    ("RuntimeError", "Error(s) in loading state_dict for GPT: size mismatch for wte.weight"),
    ("RuntimeError", "DataLoader worker (pid 4011) is killed by signal: Killed."),
    ("ValueError", "a bug of the script: connection reset by peer is only a word here"),
    ("KeyError", "'broken pipe'"),
    ("NonFiniteGradient", "this rank's own gradient is not finite before the all-reduce of step 12"),
    ("AssertionError", "tcpstore"),
    ("ZeroDivisionError", "division by zero"),
    ("FileNotFoundError", "[Errno 2] No such file or directory: '/data/train.bin'"),
    ("OSError", "[Errno 28] No space left on device"),
    ("RuntimeError", "The server socket has failed to listen on any local network address. port: 29500, errno: 98 Address already in use"),
    ("DistBackendError", "NCCL error: ncclUnhandledCudaError: Call to CUDA function failed. Last error: Cuda failure 'uncorrectable ECC error encountered'"),
    ("DistBackendError", "ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 65000"),
    ("RuntimeError", "element 0 of tensors does not require grad and does not have a grad_fn"),
    ("MemoryError", ""),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "message"), VICTIMS)
def test_echo_of_a_peers_loss_is_a_victim(kind: str, message: str) -> None:
    assert is_victim(kind, message)


@pytest.mark.parametrize(("kind", "message"), OWN)
def test_fault_of_its_own_is_none(kind: str, message: str) -> None:
    assert not is_victim(kind, message)


def _raise(rank: int, where: int = 0) -> BaseException:
    def elsewhere() -> None:
        raise ValueError(f"rank {rank} saw nonsense")

    try:
        if where:
            elsewhere()
        raise ValueError(f"rank {rank} saw nonsense")
    except ValueError as error:
        return error


def test_fingerprint_is_one_per_place_and_not_per_rank_or_line() -> None:
    assert fingerprint(_raise(0, 1)) == fingerprint(_raise(7, 1)) != fingerprint(_raise(0, 0))
    assert fingerprint(_raise(0)) == "ValueError|python:|tests.worker.test_failures:_raise"


def test_fingerprint_names_the_librarys_code_and_the_innermost_three_frames_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "def step(): raise RuntimeError('CUDA error: an illegal memory access was encountered')\n"
        "def epoch(): step()\n"
        "def train(): epoch()\n"
        "def main(): train()\n"
    )
    spaces: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(script.read_text(), str(script), "exec"), spaces)
    with pytest.raises(RuntimeError) as caught:
        spaces["main"]()
    caught.value.__traceback__ = caught.value.__traceback__.tb_next  # type: ignore[union-attr]
    expected = "RuntimeError|device:an illegal memory access was encountered|train:step<train:epoch<train:train"
    assert fingerprint(caught.value) == expected


def test_a_bare_exit_has_no_fingerprint() -> None:
    assert fingerprint(SystemExit(3)) == "" == fingerprint(KeyboardInterrupt())


def test_whose_disk_an_error_is_of(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/sda1 / ext4 rw 0 0\nserver:/export /mnt/nfs nfs4 rw 0 0\n/dev/nvme0n1 /mnt/nfs/fast xfs rw 0 0\n")
    at = {name: disk_of(OSError(5, "Input/output error", name), mounts) for name in ("/data/x", "/mnt/nfs/y", "/mnt/nfs/fast/z")}
    assert at == {"/data/x": "local", "/mnt/nfs/y": "network", "/mnt/nfs/fast/z": "local"}
    assert disk_of(OSError(5, "Input/output error"), mounts) is None and disk_of(ValueError("x"), mounts) is None


def test_what_lies_on_no_disk_is_no_disks_error(tmp_path: Path) -> None:
    """A terminal that was closed, a device's own file, files in memory; and block devices of a server."""
    mounts = tmp_path / "mounts"
    rows = ["/dev/sda1 / ext4", "devpts /dev/pts devpts", "sysfs /sys sysfs", "tmpfs /dev/shm tmpfs", "panfs://p /pan panfs"]
    mounts.write_text("".join(f"{row} rw 0 0\n" for row in [*rows, "/dev/rbd0 /vol ext4"]))
    names = ("/dev/pts/3", "/sys/class/infiniband/mlx5_0/state", "/dev/shm/x", "/pan/x", "/vol/x", "/scratch/x")
    found = [disk_of(OSError(5, "Input/output error", name), mounts) for name in names]
    assert found == [None, None, None, "network", "network", "local"]


def test_fingerprint_does_not_depend_on_frames_of_libraries() -> None:
    import json

    def parse(text: str) -> BaseException:
        try:
            json.loads(text)
        except ValueError as error:
            return error
        raise AssertionError

    assert fingerprint(parse("{")) == fingerprint(parse("[1,"))


def test_traceback_tail_ends_with_the_message() -> None:
    assert traceback_tail(_raise(3, 1)).splitlines()[-1] == "ValueError: rank 3 saw nonsense"


def test_interrupted_passes_an_ordinary_except() -> None:
    assert not issubclass(Interrupted, Exception) and issubclass(NonFiniteGradient, RuntimeError)
