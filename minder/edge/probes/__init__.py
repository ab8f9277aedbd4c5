"""Probes: programs that test one machine while no job runs on it. One probe a file; each runs as a process of its own."""
