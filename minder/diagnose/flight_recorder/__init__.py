"""What the job's collectives and operations say: which rank holds the others up, and what slows a step down."""
