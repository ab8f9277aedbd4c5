"""Taking a machine away from a job: one contract, several engines."""
