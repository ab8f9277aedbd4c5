"""Verdicts: rules that turn scores and signals into suspects, and the judge that fuses them. Loads nothing by itself."""
