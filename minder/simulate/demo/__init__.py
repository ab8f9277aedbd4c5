"""`minder demo`: the whole loop on one machine, from a training job to an incident report."""
