"""A machine's telemetry over a window of the past, read in a process of its own."""
