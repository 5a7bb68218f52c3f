"""Arrow's data model over buffers: layouts, batches, columns and the C interfaces."""

from bowstring.columnar.batch import Batch, Column, batches
from bowstring.columnar.layout import Layout
from bowstring.columnar.materialize import placed, placed_bytes
from bowstring.columnar.nodes import Kind, Node
from bowstring.columnar.parts import Dictionary
from bowstring.columnar.slice import compacted, is_compact

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
