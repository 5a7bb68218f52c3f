"""Coverage-guided fuzzing of one target, from the root of the repository and alone::

    python -m tests.fuzz stream CORPUS -max_total_time=600

CORPUS is a folder for what is found on the way; seeds are put into it where it is empty. All that follows goes
to libFuzzer. An input that brings a target down is left in the folder at hand as ``crash-…``: put it, smaller if
that is easy, under ``tests/fuzz/corpus/TARGET``, where a fast test replays it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import atheris

# What is instrumented cannot be compiled; and interpreted, a kernel that leaves its arrays says so.
os.environ["BOWSTRING_KERNELS"] = "interpret"

with atheris.instrument_imports(
    include=[
        "bowstring.ipc",
        "bowstring.columnar",
        "bowstring.variant",
        "bowstring.kernels",
        "bowstring.transport.ucx",
    ],
    enable_loader_override=False,
):
    from tests.fuzz.seeds import folder_of_seeds, seeds
    from tests.fuzz.targets import TARGETS

_BOUNDS: Final = ["-timeout=10", "-rss_limit_mb=2048", "-malloc_limit_mb=512", "-max_len=16384"]


def _plant(target: str, corpus: Path) -> None:
    corpus.mkdir(parents=True, exist_ok=True)
    if not any(corpus.iterdir()):
        for index, seed in enumerate(seeds(target, folder_of_seeds()).values()):
            (corpus / f"seed-{index}").write_bytes(seed)


def _main(target: str, corpus: str, *options: str) -> None:
    _plant(target, Path(corpus))
    known = Path(__file__).parent / "corpus" / target
    folders = [corpus, str(known)] if known.is_dir() else [corpus]
    atheris.Setup([sys.argv[0], *_BOUNDS, *options, *folders], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    _main(*sys.argv[1:])
