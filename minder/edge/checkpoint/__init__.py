"""Checkpoints of every step: what a training process writes and reads. Only manifest.py loads without torch."""
