"""What the results of probes mean."""
