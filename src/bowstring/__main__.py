"""``python -m bowstring``: the command line."""

import sys

from bowstring.cli import main

if __name__ == "__main__":
    sys.exit(main())
