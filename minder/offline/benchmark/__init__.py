"""The public benchmark: programs of others, and minder's own, on the same inputs by the same rules (datasets/benchmark/RULES.md)."""
