"""Reading some of the columns: what is not chosen is left out of a batch's header before anybody looks at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bowstring.errors import UsageError
from bowstring.ipc.body.check_scalar import check_counts

if TYPE_CHECKING:
    from bowstring.columnar.layout import Layout
    from bowstring.ipc.flatbuf.message import RecordBatchHeader

__all__ = ["Selection"]


class Selection:
    """Some columns of a layout.

    Parameters
    ----------
    whole
        The layout of all columns.
    columns
        Positions; order and repetitions do not matter, as in pyarrow.

    Raises
    ------
    UsageError
        There is no column at a position.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bowstring.columnar.layout import Layout
    >>> whole = Layout.of(pa.schema({"a": pa.int8(), "b": pa.string(), "c": pa.int8()}))
    >>> Selection(whole, [2, 1, 2]).layout.schema.names
    ['b', 'c']
    """

    def __init__(self, whole: Layout, columns: Sequence[int]) -> None:
        self.whole = whole
        self._columns = sorted(set(columns))
        count = len(whole.columns)
        if self._columns and self._columns[-1] >= count:
            raise UsageError(
                "included_fields names a column that is not there",
                expected=f"less than {count}",
                found=self._columns[-1],
            )
        self.layout, self._nodes, self._buffers = whole.select(self._columns, [0] * len(whole.variadic_nodes))
        chosen = set(self._nodes.tolist())
        self._is_chosen = [node in chosen for node in whole.variadic_nodes]

    def narrowed(self, header: RecordBatchHeader) -> RecordBatchHeader:
        """Return the header of the chosen columns.

        Raises
        ------
        InvalidMetadata
            The header has other numbers of nodes or buffers than the layout of all columns.
        """
        check_counts(header, self.whole)
        buffers = self._buffers
        if header.variadic_counts:
            _, _, buffers = self.whole.select(self._columns, header.variadic_counts)
        counts = zip(header.variadic_counts, self._is_chosen, strict=True)
        return header._replace(
            nodes=header.nodes[self._nodes],
            buffers=header.buffers[buffers],
            variadic_counts=tuple(count for count, is_chosen in counts if is_chosen),
        )
