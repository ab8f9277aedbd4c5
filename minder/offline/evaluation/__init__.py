"""Evaluation: recordings replayed through the online pipeline, and scored against their truth. Loads nothing by itself."""
