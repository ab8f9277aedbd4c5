"""What is done later: evaluation, training, reliability, plots."""
