"""Clusters that do not exist: the local lab of real processes, and simulated telemetry."""
