"""Writing to a folder, with fsync, and reading it back: how fast, and whether it is the same. A full disk is a clear result.

The file has no name while it is written where the file system can do that, so that nothing stays behind when the probe is killed.
"""

from __future__ import annotations

import errno
import os
import statistics
import tempfile
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minder.edge.probes.contract import Finding, Probe
from minder.edge.probes.program import run
from minder.model.probes import Measurement

__all__ = ["FAULTS", "LEAST_BYTES", "PROBE", "file_system_of", "measure"]

PROBE = Probe(
    name="disk",
    version=2,
    says="write and read bandwidth of a folder, its fsync, and whether it is full",
    limit_s=60.0,
    measures={
        "disk_write": "B/s, until the last byte is on the disk (fsync)",
        "disk_read": "B/s of the same file, out of the page cache where the kernel lets go of it",
        "disk_fsync": "s, median of small writes with fsync",
        "disk_free": "B that may still be written",
    },
    source="ByteRobust's disk fault; fio's sequential write with end_fsync",
)

_BLOCK_BYTES = 1 << 20
_SIZE_BYTES = 128 << 20
LEAST_BYTES = 8 << 20
_FSYNCS = 20
# These say that the disk is broken or full, whatever else is known; others (no such folder, no permission) say that the order is wrong.
FAULTS = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota is used up", errno.EIO: "the disk answers with I/O errors",
           errno.EROFS: "the file system is read-only", errno.ESTALE: "the file system is gone (stale handle)",
           errno.EUCLEAN: "the file system is damaged"}  # fmt: skip


def measure(options: Mapping[str, Any]) -> Finding:
    """options: folder (the system's temporary one), size_bytes (128 MiB, less where the disk has less)."""
    folder = Path(str(options.get("folder") or tempfile.gettempdir()))
    try:
        return _measure(folder, int(options.get("size_bytes", _SIZE_BYTES)))
    except OSError as error:
        if error.errno in FAULTS:
            return Finding("failed", f"{folder}: {FAULTS[error.errno]}", _free(folder), _facts(folder), {"folder": str(folder)})
        return Finding("not_applicable", f"{folder} cannot be tested: {error.strerror}")


def _measure(folder: Path, size_bytes: int) -> Finding:
    free = os.statvfs(folder)
    left = free.f_bavail * free.f_frsize
    if left < LEAST_BYTES:
        raise OSError(errno.ENOSPC, "no space")
    size_bytes = max(LEAST_BYTES // 2, min(size_bytes, left // 2)) // _BLOCK_BYTES * _BLOCK_BYTES
    handle = _open(folder)
    try:
        write, expected = _write(handle, size_bytes)
        read, found = _read(handle, size_bytes)
        fsyncs = _fsyncs(handle)
    finally:
        os.close(handle)
    fault = "" if expected == found else f"{folder}: what was read is not what was written"
    measures = (
        Measurement("disk_write", write, "B/s", "higher"),
        Measurement("disk_read", read, "B/s", "none"),
        Measurement("disk_fsync", statistics.median(fsyncs), "s", "lower", tolerance=0.002),
        *_free(folder),
    )
    facts = {**_facts(folder), "size": str(size_bytes)}
    return Finding("failed" if fault else "measured", fault, measures, facts, {"folder": str(folder)})


def _open(folder: Path) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
    handle, name = tempfile.mkstemp(prefix=".minder-probe-", dir=folder)
    Path(name).unlink()
    return handle


def _write(handle: int, size_bytes: int) -> tuple[float, int]:
    block = os.urandom(_BLOCK_BYTES)  # what compresses well would measure the file system's compression
    begun, sums = time.perf_counter(), 0
    for _ in range(size_bytes // _BLOCK_BYTES):
        _write_all(handle, block)
        sums = zlib.crc32(block, sums)
    os.fsync(handle)
    return size_bytes / (time.perf_counter() - begun), sums


def _write_all(handle: int, block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _read(handle: int, size_bytes: int) -> tuple[float, int]:
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.lseek(handle, 0, os.SEEK_SET)
    begun, sums = time.perf_counter(), 0
    while block := os.read(handle, _BLOCK_BYTES):
        sums = zlib.crc32(block, sums)
    return size_bytes / (time.perf_counter() - begun), sums


def _fsyncs(handle: int) -> list[float]:
    found = []
    for index in range(_FSYNCS):
        os.lseek(handle, index * 4096, os.SEEK_SET)
        begun = time.perf_counter()
        _write_all(handle, bytes(4096))
        os.fsync(handle)
        found.append(time.perf_counter() - begun)
    return found


def _free(folder: Path) -> tuple[Measurement, ...]:
    try:
        free = os.statvfs(folder)
    except OSError:
        return ()
    return (Measurement("disk_free", free.f_bavail * free.f_frsize, "B"),)


def _facts(folder: Path) -> dict[str, str]:
    """Alike on equal disks, whatever the folder is called: it often carries the machine's name."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return {"file_system": file_system_of(folder)}
    return {"file_system": file_system_of(folder), "capacity": f"{found.f_blocks * found.f_frsize:.1e} B"}


def file_system_of(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Its type ("ext4"), of the longest mount point above the folder; "?" where the kernel does not say."""
    try:
        rows = [line.split() for line in mounts.read_text().splitlines()]
        place = str(folder.resolve())
    except OSError:
        return "?"
    found = [(row[1], row[2]) for row in rows if len(row) > 2 and (place == row[1] or place.startswith(row[1].rstrip("/") + "/"))]
    return max(found, key=lambda item: len(item[0]), default=("", "?"))[1]


if __name__ == "__main__":
    run(PROBE, measure)
