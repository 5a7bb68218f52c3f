"""``python -m bowstring.benchmarks``: the same as ``bowstring bench``."""

from __future__ import annotations

import sys

from bowstring.benchmarks import main

if __name__ == "__main__":
    sys.exit(main())
