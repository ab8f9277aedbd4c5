"""Signals come in: from a site's monitors, as evidence about machines of jobs."""
