"""What `minder serve` is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from minder.config import JobConfig
from serve.settings_file import ServiceFile

__all__ = ["Limits", "Settings"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one caller may ask for. Bytes, rows, seconds; rates in requests per second."""

    rate: float = 50.0
    burst: float = 200.0
    failure_rate: float = 0.5  # wrong tokens from one address
    failure_burst: float = 20.0
    sign_in_rate: float = 1.0  # people of one address who leave for the identity provider
    sign_in_burst: float = 30.0
    streams: int = 500
    signal_rate: float = 5.0  # requests with signals of one token
    signal_burst: float = 60.0
    machine_rate: float = 0.1  # signals of one token about one machine
    machine_burst: float = 60.0
    signal_bytes: int = 1024 * 1024
    job_bytes: int = 1024 * 1024
    body_bytes: int = 64 * 1024
    body_s: float = 60.0  # until a request's body must be here
    upload_bytes: int = 64 * 1024 * 1024
    upload_rows: int = 2_000_000
    upload_machines: int = 5_000
    upload_cells: int = 50_000_000  # grid rows times machines times metrics
    upload_span_s: float = 2 * 86_400.0
    scoring_s: float = 60.0
    scoring_bytes: int = 2 * 1024 * 1024 * 1024
    scoring_workers: int = 1
    scoring_queue: int = 8
    score_sessions: int = 32
    score_sessions_of_one: int = 8  # of one token
    score_session_idle_s: float = 3600.0  # without use, until it ends


@dataclass(frozen=True, slots=True)
class Settings:
    """ledger: a path or URL. jobs: the configurations whose policy and status the service may show, by job name.
    file: what service.toml says, path: where it is."""

    ledger: str
    jobs: dict[str, JobConfig] = field(default_factory=dict)
    status_files: dict[str, Path] = field(default_factory=dict)
    limits: Limits = Limits()
    certified_machines: bool = False  # agents and launchers must show a certificate of their machine
    file: ServiceFile = field(default_factory=ServiceFile)
    path: Path | None = None
