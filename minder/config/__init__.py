"""The typed configuration of one watched job: `job.toml` of `minder run` and `minder watch`. Unknown keys are errors."""

from minder.config.job import JobConfig
from minder.config.reading import check_url, load_config, parse_config, read_config
from minder.config.tables import (
    DetectorConfig,
    LocalHandle,
    MachineConfig,
    MetricsConfig,
    ReplayConfig,
    SignalsConfig,
    StandbyConfig,
    TelemetryConfig,
    TlsConfig,
)

__all__ = [
    "DetectorConfig",
    "JobConfig",
    "LocalHandle",
    "MachineConfig",
    "MetricsConfig",
    "ReplayConfig",
    "SignalsConfig",
    "StandbyConfig",
    "TelemetryConfig",
    "TlsConfig",
    "check_url",
    "load_config",
    "parse_config",
    "read_config",
]
