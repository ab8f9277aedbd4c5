"""The parts of bench/matrix.py: cells and their rungs as data, the stage, injectors, traces, the judge."""
