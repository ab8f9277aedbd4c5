"""Fitting and judging the learned detector: cached features of worlds, trees, nested validation, a report."""
