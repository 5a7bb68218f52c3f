"""Fuzzing of one target, from the root of the repository and alone: for a given time, or guided by coverage::

    python -m tests.fuzz parquet --seconds 600 --seed 7
    python -m tests.fuzz stream CORPUS -max_total_time=600

The first form changes seeds by the target's own mutator, with compiled kernels, in children that are bounded
(``running.py``), and goes on after each finding. The second one needs atheris: CORPUS is a folder for what is found
on the way; seeds are put into it where it is empty. All that follows goes to libFuzzer.
An input that brings a target down is left in the folder at hand as ``crash-…``: put it, smaller if
that is easy, under ``tests/fuzz/corpus/TARGET``, where a fast test replays it.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Final

_BOUNDS: Final = ["-timeout=10", "-rss_limit_mb=2048", "-malloc_limit_mb=512", "-max_len=16384"]
_INSTRUMENTED: Final = [
    "bowstring.ipc",
    "bowstring.columnar",
    "bowstring.variant",
    "bowstring.vortex",
    "bowstring.parquet",
    "bowstring.kernels",
    "bowstring.transport.ucx",
]


def _guided(target: str, corpus: Path, *options: str) -> None:
    import atheris

    # What is instrumented cannot be compiled; and interpreted, a kernel that leaves its arrays says so.
    os.environ["BOWSTRING_KERNELS"] = "interpret"
    with atheris.instrument_imports(include=_INSTRUMENTED, enable_loader_override=False):
        from tests.fuzz.seeds import folder_of_seeds, seeds
        from tests.fuzz.targets import MUTATORS, TARGETS, mutated

    corpus.mkdir(parents=True, exist_ok=True)
    if not any(corpus.iterdir()):
        for index, seed in enumerate(seeds(target, folder_of_seeds()).values()):
            (corpus / f"seed-{index}").write_bytes(seed)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        changed = mutated(target, bytes(data), rng) if rng.random() < 0.5 else b""
        return changed if 0 < len(changed) <= most else bytes(atheris.Mutate(data, most))

    known = Path(__file__).parent / "corpus" / target
    folders = [str(corpus), str(known)] if known.is_dir() else [str(corpus)]
    chosen = {"custom_mutator": mutate} if target in MUTATORS else {}
    atheris.Setup([sys.argv[0], *_BOUNDS, *options, *folders], TARGETS[target], **chosen)
    atheris.Fuzz()


def _for_a_time(target: str, *arguments: str) -> None:
    from tests.fuzz.running import hunt

    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    seed = options.get("--seed", random.randrange(1 << 32))
    sys.exit(hunt(target, float(options["--seconds"]), int(seed), Path.cwd()) > 0)


if __name__ == "__main__":
    if "--seconds" in sys.argv:
        _for_a_time(*sys.argv[1:])
    else:
        _guided(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
