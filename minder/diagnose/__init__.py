"""What the samples mean: detectors, rules, stacks, collectives, step traces. No input or output but for reading what it is given."""
