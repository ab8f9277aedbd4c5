"""Fitting: arrays in, weights out. Import what you need: this package loads nothing by itself."""
