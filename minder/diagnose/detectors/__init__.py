"""Detectors: one contract (`contract`), several implementations. Import the one you need: this package loads nothing by itself."""
