"""A rendezvous without a process: addresses of stores that no process opens."""

from __future__ import annotations


class FakeHost:
    """Stands in for the process that holds one TCPStore per generation."""

    def __init__(self, *unused: object) -> None: ...

    @classmethod
    def ensure(cls, *unused: object) -> FakeHost:
        return cls()

    def stop(self) -> None: ...

    def open(self, generation: int) -> tuple[str, int]:
        return "127.0.0.1", 20_000 + generation

    def close(self, generation: int) -> None: ...

    def close_before(self, generation: int) -> None: ...

    def generations(self) -> tuple[int, ...]:
        """None is left of an earlier run."""
        return ()
