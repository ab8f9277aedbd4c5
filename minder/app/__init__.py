"""Wiring: builds a controller from a configuration."""
