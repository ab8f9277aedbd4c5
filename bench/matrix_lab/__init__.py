"""The parts of bench/matrix.py: cells as data, the stage, injectors, traces, the judge."""
