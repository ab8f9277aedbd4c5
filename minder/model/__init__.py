"""What everything speaks of: telemetry, evidence, decision and history records, the metric catalogue, topology, clock, errors."""
