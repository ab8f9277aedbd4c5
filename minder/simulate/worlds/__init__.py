"""Labelled telemetry of jobs that never ran, in families of independent code."""
