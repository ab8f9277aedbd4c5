"""Stands in for torch where a test is about the launcher: importing the real one takes a second per worker."""
