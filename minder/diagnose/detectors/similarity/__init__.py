"""Detectors that compare machines within short windows: the published reference (one VAE per metric), its ablations, and classical
outlier detectors over the same windows. Import what you need: this package loads nothing by itself."""
