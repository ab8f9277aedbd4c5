"""Where samples come from: Prometheus, direct scrape, recordings; and the exporters that an agent runs.

Nothing is imported here, so that an agent may load `minder.edge.exporters` alone.
"""
