"""A slow disk, run as a file of its own: a file system (FUSE) over a folder that passes everything on to it, late.

Arguments: the folder, the name of the mount, bytes per second of reading and writing together, seconds that each fsync takes. It mounts
itself over the folder, prints "mounted", and ends when it is unmounted. What is written stays in the folder below. cgroup v1 limits no
buffered write, so a slow disk is made here, where every write is seen.

It knows what a store of plain files needs: no links, no locks, no extended attributes, no memory that is shared by mmap. Needs root.
The protocol is the kernel's (fuse.h, 7.23 and newer): a request is read from /dev/fuse, and its answer written there.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

_IN, _OUT = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")  # length, opcode, id, node, uid, gid, pid; length, error, id
_ATTR = struct.Struct("<6Q10I")
_ENTRY = struct.Struct("<4Q2I")  # node, generation, valid: entry and attributes, seconds and nanoseconds
_IO = struct.Struct("<QQII")  # handle, offset, bytes, flags
_SETATTR = struct.Struct("<IIQQQQQQIIIIIIII")
_REQUEST = (1 << 20) + 4096
_MOST_WRITE = 128 << 10
_BIG_WRITES, _DIRECT_IO = 1 << 5, 1
_ROOT = 1
_MODE, _SIZE, _ATIME, _MTIME = 1 << 0, 1 << 3, 1 << 4, 1 << 5  # what a request to set attributes names
_MS_NOSUID, _MS_NODEV = 2, 4


class SlowDisk:
    """One mounted folder. Node numbers stand for paths below it; what was opened is known by its descriptor."""

    def __init__(self, folder: int, rate: float, fsync_s: float) -> None:
        """folder: a descriptor of it, from before the mount covered it."""
        self._base, self._rate, self._fsync_s = Path(f"/proc/self/fd/{folder}"), rate, fsync_s
        self._free_s = 0.0  # when the disk has done all that was asked
        self._paths: dict[int, str] = {_ROOT: ""}
        self._numbers: dict[str, int] = {"": _ROOT}
        self._next = _ROOT + 1
        self._open: dict[int, int] = {}  # node to a descriptor, for a file that has no name any more
        self._does: dict[int, Callable[[int, bytes], bytes]] = {
            1: self._lookup, 3: self._getattr, 4: self._setattr, 9: self._mkdir, 10: self._unlink, 11: self._rmdir, 12: self._rename,
            14: self._open_file, 15: self._read, 16: self._write, 17: self._statfs, 18: self._release, 20: self._fsync, 25: self._flush,
            26: self._init, 27: self._open_folder, 28: self._read_folder, 29: self._release_folder, 30: self._fsync, 34: self._flush,
            35: self._create, 45: self._rename2,
        }  # fmt: skip

    def serve(self, device: int) -> None:
        """Until it is unmounted."""
        while True:
            try:
                request = os.read(device, _REQUEST)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return
            _, opcode, number, node, *_ = _IN.unpack_from(request)
            if opcode in (2, 36, 42):  # forget, interrupt: they have no answer
                continue
            code, answer = self._answer(opcode, node, request[_IN.size :])
            try:
                os.write(device, _OUT.pack(_OUT.size + len(answer), -code, number) + answer)
            except OSError as error:
                if error.errno != errno.ENOENT:  # the caller was killed meanwhile
                    return

    def _answer(self, opcode: int, node: int, body: bytes) -> tuple[int, bytes]:
        work = self._does.get(opcode)
        if work is None:
            return errno.ENOSYS, b""
        try:
            return 0, work(node, body)
        except OSError as error:
            return error.errno or errno.EIO, b""

    def _take(self, seconds: float) -> None:
        """The disk does one thing after the other, and has no memory of idle time."""
        now_s = time.monotonic()
        self._free_s = max(now_s, self._free_s) + seconds
        time.sleep(self._free_s - now_s)

    def _path(self, node: int) -> Path:
        return self._base / self._paths[node]

    def _below(self, node: int, name: bytes) -> str:
        """Relative to the folder."""
        plain = os.fsdecode(name.split(b"\0", 1)[0])
        return f"{self._paths[node]}/{plain}".lstrip("/")

    def _attributes(self, path: Path, node: int) -> bytes:
        try:
            found = path.stat(follow_symlinks=node == _ROOT)  # the folder itself is a link of /proc
        except FileNotFoundError:
            if node not in self._open:
                raise
            found = os.fstat(self._open[node])
        times = [(int(value), value_ns % 10**9) for value, value_ns in (
            (found.st_atime, found.st_atime_ns), (found.st_mtime, found.st_mtime_ns), (found.st_ctime, found.st_ctime_ns))]  # fmt: skip
        whole, parts = zip(*times, strict=True)
        rest = (found.st_mode, found.st_nlink, found.st_uid, found.st_gid, found.st_rdev, found.st_blksize, 0)
        return _ATTR.pack(node, found.st_size, found.st_blocks, *whole, *parts, *rest)

    def _entry(self, relative: str) -> bytes:
        path = self._base / relative
        path.lstat()
        node = self._numbers.get(relative)
        if node is None:
            node, self._next = self._next, self._next + 1
            self._numbers[relative], self._paths[node] = node, relative
        return _ENTRY.pack(node, 0, 0, 0, 0, 0) + self._attributes(path, node)

    def _lose(self, relative: str) -> None:
        """It has no name any more; its node stays known to who has it open."""
        self._numbers.pop(relative, None)

    def _init(self, node: int, body: bytes) -> bytes:
        _, minor, ahead, _ = struct.unpack_from("<4I", body)
        return struct.pack("<4I2H2I2HI7I", 7, min(minor, 31), ahead, _BIG_WRITES, 8, 6, _MOST_WRITE, 1, 0, 0, 0, *([0] * 7))

    def _lookup(self, node: int, body: bytes) -> bytes:
        return self._entry(self._below(node, body))

    def _getattr(self, node: int, body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._attributes(self._path(node), node)

    def _setattr(self, node: int, body: bytes) -> bytes:
        valid, _, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, *_ = _SETATTR.unpack_from(body)
        target: Path | int = self._open.get(node, self._path(node))
        if valid & _SIZE:
            os.truncate(target, size)
        if valid & _MODE:
            self._path(node).chmod(stat.S_IMODE(mode))
        if valid & (_ATIME | _MTIME):
            os.utime(target, ns=(atime * 10**9 + atime_ns, mtime * 10**9 + mtime_ns))
        return self._getattr(node, b"")

    def _mkdir(self, node: int, body: bytes) -> bytes:
        mode, umask = struct.unpack_from("<II", body)
        relative = self._below(node, body[8:])
        (self._base / relative).mkdir(mode & ~umask)
        return self._entry(relative)

    def _unlink(self, node: int, body: bytes) -> bytes:
        relative = self._below(node, body)
        (self._base / relative).unlink()
        self._lose(relative)
        return b""

    def _rmdir(self, node: int, body: bytes) -> bytes:
        relative = self._below(node, body)
        (self._base / relative).rmdir()
        self._lose(relative)
        return b""

    def _rename(self, node: int, body: bytes, head: int = 8) -> bytes:
        (folder,) = struct.unpack_from("<Q", body)
        old_name, new_name = body[head:].split(b"\0")[:2]
        old, new = self._below(node, old_name), self._below(folder, new_name)
        (self._base / old).rename(self._base / new)
        self._lose(new)
        for path in [path for path in self._numbers if path == old or path.startswith(f"{old}/")]:
            moved = self._numbers.pop(path)
            self._numbers[new + path[len(old) :]], self._paths[moved] = moved, new + path[len(old) :]
        return b""

    def _rename2(self, node: int, body: bytes) -> bytes:
        if struct.unpack_from("<I", body, 8)[0]:  # an exchange, or never over another: not offered
            raise OSError(errno.EINVAL, "flags")
        return self._rename(node, body, 16)

    def _open_file(self, node: int, body: bytes) -> bytes:
        flags = struct.unpack_from("<I", body)[0] & ~(os.O_DIRECT | os.O_APPEND)
        return self._opened(node, os.open(self._path(node), flags | os.O_CLOEXEC))

    def _create(self, node: int, body: bytes) -> bytes:
        flags, mode, umask, _ = struct.unpack_from("<4I", body)
        relative = self._below(node, body[16:])
        handle = os.open(self._base / relative, (flags | os.O_CREAT | os.O_CLOEXEC) & ~(os.O_DIRECT | os.O_APPEND), mode & ~umask)
        entry = self._entry(relative)
        return entry + self._opened(self._numbers[relative], handle)

    def _opened(self, node: int, handle: int) -> bytes:
        self._open[node] = handle
        return struct.pack("<QII", handle, _DIRECT_IO, 0)

    def _read(self, node: int, body: bytes) -> bytes:
        handle, offset, size, _ = _IO.unpack_from(body)
        found = os.pread(handle, size, offset)
        self._take(len(found) / self._rate)
        return found

    def _write(self, node: int, body: bytes) -> bytes:
        handle, offset, size, _ = _IO.unpack_from(body)
        written = os.pwrite(handle, body[40 : 40 + size], offset)
        self._take(written / self._rate)
        return struct.pack("<II", written, 0)

    def _fsync(self, node: int, body: bytes) -> bytes:
        self._take(self._fsync_s)
        return b""

    def _flush(self, node: int, body: bytes) -> bytes:
        return b""

    def _release(self, node: int, body: bytes) -> bytes:
        (handle,) = struct.unpack_from("<Q", body)
        os.close(handle)
        if self._open.get(node) == handle:
            del self._open[node]
        return b""

    def _statfs(self, node: int, body: bytes) -> bytes:
        found = os.statvfs(self._base)
        rows = (found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree)
        return struct.pack("<5Q4I6I", *rows, found.f_bsize, found.f_namemax, found.f_frsize, 0, *([0] * 6))

    def _open_folder(self, node: int, body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0)

    def _read_folder(self, node: int, body: bytes) -> bytes:
        _, offset, size, _ = _IO.unpack_from(body)
        names, found = [".", "..", *sorted(item.name for item in self._path(node).iterdir())], b""
        for place, name in enumerate(names[offset:], offset + 1):
            encoded = os.fsencode(name)
            row = struct.pack("<QQII", 2**32 + place, place, len(encoded), 0) + encoded
            row += bytes(-len(row) % 8)
            if len(found) + len(row) > size:
                break
            found += row
        return found

    def _release_folder(self, node: int, body: bytes) -> bytes:
        return b""


def mount(folder: str, name: str) -> int:
    """The descriptor of /dev/fuse that answers for the folder. Raises OSError."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode={stat.S_IFMT(Path(folder).stat().st_mode):o},user_id=0,group_id=0,allow_other".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(name.encode(), folder.encode(), b"fuse", _MS_NOSUID | _MS_NODEV, options):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return device


def main() -> int:
    folder, name, rate, fsync_s = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    os.umask(0)
    below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        device = mount(folder, name)
    except OSError as error:
        print(f"cannot mount a slow disk over {folder}: {error.strerror}", flush=True)
        return 1
    print("mounted", flush=True)
    SlowDisk(below, rate, fsync_s).serve(device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
