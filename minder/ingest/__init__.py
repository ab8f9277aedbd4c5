"""Where samples come from: sources, mappings, windows and clock alignment."""
