"""Explicit faults: what kernel logs, GPU drivers and the job's own log lines say outright. Imports nothing by itself."""
