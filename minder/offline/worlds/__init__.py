"""Worlds as detectors see them: aligned windows, the peers of each machine, and whether the telemetry shows the truth at all."""
