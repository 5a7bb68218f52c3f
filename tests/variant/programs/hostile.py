"""Work on broken columns: ``python -m tests.variant.programs.hostile pages|checked PARQUET_TESTING FLIPS``."""

from __future__ import annotations

import random
import sys
import warnings
from pathlib import Path

import pyarrow as pa

from bowstring import variant
from tests.fuzz.running import guard_kernels
from tests.variant.get_columns import column_of
from tests.variant.hostile import broken_texts, corpus_of, everything, flipped, prefixes

AT_ONCE = 20_000
# Here, since what -W is given is no pattern.
warnings.filterwarnings("ignore", ".* became null")

if sys.argv[1] == "pages":
    guard_kernels(random.Random(1))
corpus = corpus_of(Path(sys.argv[2]))
everything(column_of(list(prefixes(corpus)), "binary"))
left, rows = int(sys.argv[3]), 0
while rows < left:
    some = list(flipped(corpus, min(AT_ONCE, left - rows), rows))
    everything(column_of(some, "binary"))
    texts = pa.array(broken_texts(AT_ONCE // 10, rows), pa.binary())
    everything(variant.from_json(texts, on_error="null"))
    variant.from_json(texts, on_error="null", rules="spark")
    rows += len(some)
print(rows)
