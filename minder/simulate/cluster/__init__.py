"""Telemetry of a cluster that does not exist: seeded, physically sensible, with the truth beside it (docs/simulator.md)."""
