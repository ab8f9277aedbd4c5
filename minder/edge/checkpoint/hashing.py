"""Files whose SHA-256 is known as they are written: what is hashed is what was meant, not what the disk made of it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from torch.distributed.checkpoint.filesystem import FileSystem

from minder.edge.checkpoint.manifest import ManifestFile

__all__ = ["HashingFiles"]


class _HashingStream:
    """A file that is written from the start to the end; each write also goes into the digest."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._sha256 = hashlib.sha256()
        self.size_bytes = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._stream.write(view)
        self._sha256.update(view)
        self.size_bytes += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        self.flush()
        return self._stream.fileno()

    def close(self) -> None:
        self._stream.close()

    def hexdigest(self) -> str:
        return self._sha256.hexdigest()


class HashingFiles(FileSystem):  # type: ignore[misc, unused-ignore]
    """torch's file system, for one checkpoint of one rank."""

    def __init__(self) -> None:
        self._written: dict[str, ManifestFile] = {}

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        with Path(path).open(mode) as stream:
            if "w" not in mode:
                yield stream
                return
            hashing = _HashingStream(stream)
            yield hashing
            name = Path(path).name
            self._written[name] = ManifestFile(name, hashing.size_bytes, hashing.hexdigest())

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        Path(path).rename(new_path)
        file = self._written.pop(Path(path).name, None)
        if file is not None:
            name = Path(new_path).name
            self._written[name] = ManifestFile(name, file.size_bytes, file.sha256)

    def written(self) -> tuple[ManifestFile, ...]:
        """What this rank wrote."""
        return tuple(self._written.values())
