"""What the controller hears of a job, and what it does not see."""
