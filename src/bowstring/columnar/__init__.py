"""Arrow's data model over buffers: layouts, batches, columns and the C interfaces."""

from bowstring.columnar.batch import Batch, batches
from bowstring.columnar.column import Column
from bowstring.columnar.compact import compacted, is_compact
from bowstring.columnar.dictionary import Dictionary
from bowstring.columnar.layout import Layout
from bowstring.columnar.materialize import placed, placed_bytes
from bowstring.columnar.nodes import Kind, Node

__all__ = [
    "Batch",
    "Column",
    "Dictionary",
    "Kind",
    "Layout",
    "Node",
    "batches",
    "compacted",
    "is_compact",
    "placed",
    "placed_bytes",
]
