"""Schemas that the service and its client share. Import the submodules; this package loads nothing."""
