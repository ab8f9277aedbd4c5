"""What the job is doing: one owner, read by all rules and by the controller."""
