"""Work on broken columns: ``python -m tests.variant.programs.hostile few|all PARQUET_TESTING FLIPS``."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pyarrow as pa

from bowstring import variant
from tests.variant.get_columns import column_of
from tests.variant.hostile import broken_texts, corpus_of, everything, few_things, flipped, prefixes

AT_ONCE = 20_000
# Here, since what -W is given is no pattern.
warnings.filterwarnings("ignore", ".* became null")

work = {"few": few_things, "all": everything}[sys.argv[1]]
corpus = corpus_of(Path(sys.argv[2]))
work(column_of(list(prefixes(corpus)), "binary"))
left, rows = int(sys.argv[3]), 0
while rows < left:
    some = list(flipped(corpus, min(AT_ONCE, left - rows), rows))
    work(column_of(some, "binary"))
    if work is everything:
        texts = pa.array(broken_texts(AT_ONCE // 10, rows), pa.binary())
        everything(variant.from_json(texts, on_error="null"))
        variant.from_json(texts, on_error="null", rules="spark")
    rows += len(some)
print(rows)
