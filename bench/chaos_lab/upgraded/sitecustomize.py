"""An agent that comes back as another version: what it says of itself, and nothing else."""

import os

if "CHAOS_VERSION" in os.environ:
    import minder

    minder.__version__ = os.environ["CHAOS_VERSION"]
