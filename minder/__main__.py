"""`python -m minder` is `minder`."""

import sys

from minder.cli import main

if __name__ == "__main__":
    sys.exit(main())
