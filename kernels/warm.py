"""Warming the cache: ``python -m bowstring.kernels.warm`` compiles every kernel, so that no launch has to.

That is for installations without a library of kernels. Run it where an image is built, with ``BOWSTRING_CACHE_DIR``
set to a folder of the image; the folder may be read-only later. ``--cuda 9.0`` compiles for GPUs of that compute
capability too, and needs no GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bowstring.kernels import cubin, jit
from bowstring.kernels.signature import signatures


def warm(capabilities: Sequence[tuple[int, int]] = ()) -> int:
    """Compile every signature for the host and for some CUDA compute capabilities, or find them in the cache."""
    count = 0
    for signature in signatures():
        jit.compiled(signature)
        for capability in capabilities:
            cubin.load_cubin(signature, capability)
        count += 1
    return count


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m bowstring.kernels.warm", description=warm.__doc__)
    parser.add_argument("--cuda", action="append", default=[], metavar="9.0", help="a compute capability")
    chosen = parser.parse_args().cuda
    pairs = [tuple(map(int, each.split("."))) for each in chosen]
    count = warm([(major, minor) for major, minor in pairs])
    print(f"{count} signatures are compiled")  # noqa: T201  it is a command


if __name__ == "__main__":
    main()
