"""Filling: tables of fixed-width columns whose memory is shared before anything is written to it."""

from __future__ import annotations

import math
import operator
import threading
from typing import TYPE_CHECKING, Any, Final, NoReturn, SupportsIndex

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.lookup import column_index
from bowstring.columnar.nodes import Kind, storage_type
from bowstring.columnar.parts import make_batch
from bowstring.errors import NotPicklable, Unsupported, UsageError, ViewsAlive
from bowstring.memory import settle_devices
from bowstring.memory.buffer import array_to_fill, is_written

if TYPE_CHECKING:
    from collections.abc import Callable

    from bowstring.columnar.batch import Column
    from bowstring.dissociated.endpoint import Endpoint
    from bowstring.memory import Buffer, Pool

_MOST_ROWS: Final = 1 << 48
_FIXED_WIDTH: Final = ((Kind.VALIDITY, Kind.DATA), (Kind.VALIDITY, Kind.BITS))


class EmptyTable:
    """A table in shared memory, whose columns are filled in place and then published without a copy.

    :meth:`bowstring.Server.empty` makes it. ``table["price"]`` is a writable array over the memory of a column: of
    NumPy, or of CuPy where the server's pool is on a GPU. It is as `Column.raw_values` shows it: numbers have their
    own dtype; dates, times, timestamps and durations are integers; anything else has shape (rows, bytes). Lists of
    a fixed size have one more dimension, and Booleans are packed, eight in a byte (``numpy.packbits(…,
    bitorder="little")``). Nothing is null, and what nobody fills is zero.

    Attributes
    ----------
    name
        What it will be called.
    schema : pyarrow.Schema
        Of its columns.
    num_rows
        Of each column.
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        rows: int,
        pool: Pool,
        seconds: float,
        publish: Callable[..., Endpoint],
    ) -> None:
        self.name = name
        self.schema = schema
        self.num_rows = _rows_of(rows)
        self._publish = publish
        self._lock = threading.Lock()
        layout = Layout.of(schema)
        leaves = [_leaf(layout, index, self.num_rows) for index in layout.columns]
        alignment = pool.device.alignment
        allocator = pool.allocator(sum(nbytes + alignment for _, nbytes in leaves))
        buffers: list[Buffer | None] = [None] * int(layout.first_buffers()[-1])
        self._filled: list[Buffer | None] = []
        for position, nbytes in leaves:
            buffer = None
            if nbytes:  # and what is behind them, where another table may have been
                whole = allocator.allocate(-(-nbytes // alignment) * alignment)
                with pool.device.use():
                    array_to_fill(whole)[:] = 0
                buffer = whole.slice(0, nbytes)
            self._filled.append(buffer)
            buffers[position] = buffer
        settle_devices((pool.device,), seconds)
        nodes = np.zeros((len(layout.nodes), 2), np.int64)
        for index, node in enumerate(layout.nodes):
            nodes[index, 0] = self.num_rows
            if (above := node.parent) >= 0:
                nodes[index, 0] = nodes[above, 0] * storage_type(layout.nodes[above].type).list_size
        self._batch = make_batch(Batch, layout, self.num_rows, nodes, buffers, device=pool.device)

    def __getitem__(self, key: str | SupportsIndex) -> Any:
        index = column_index(self.schema, key)
        column: Column = self._batch[index]
        shape = [self.num_rows]
        while pa.types.is_fixed_size_list(type_ := storage_type(column.type)):
            shape.append(type_.list_size)
            [column] = column.children
        if pa.types.is_boolean(type_):
            shape, dtype = [(math.prod(shape) + 7) >> 3], np.dtype(np.uint8)
        else:
            like = column.raw_values
            shape, dtype = [*shape, *like.shape[1:]], like.dtype
        buffer, device = self._filled[index], self._batch.device
        if buffer is None:
            with device.use():
                return device.xp.empty(shape, dtype)
        with self._lock:
            array = array_to_fill(buffer)
        return array.view(dtype).reshape(shape)

    def publish(self, **options: Any) -> Endpoint:
        """Offer the table as it is now, under its name; its columns are read-only from now on.

        Parameters
        ----------
        **options
            Those of :meth:`bowstring.Server.publish`, whose errors it raises, too.

        Returns
        -------
        Endpoint
            What a reader needs to :func:`bowstring.connect`.

        Raises
        ------
        ViewsAlive
            A writable array of a column is alive, or a view of one. Nothing was published, and all can be written
            still.

        Examples
        --------
        >>> import pyarrow as pa, bowstring as bow
        >>> with bow.Server() as server:
        ...     table = server.empty("squares", pa.schema({"n": pa.int64()}), 4)
        ...     for row in range(4):
        ...         table["n"][row] = row * row
        ...     endpoint = table.publish(readers=1)
        ...     with bow.connect(endpoint) as stream:
        ...         stream.to_pydict()
        {'n': [0, 1, 4, 9]}
        """
        with self._lock:
            columns = zip(self.schema.names, self._filled, strict=True)
            filled = [(name, buffer) for name, buffer in columns if buffer is not None]
            written = [name for name, buffer in filled if is_written(buffer)]
            if written:
                raise ViewsAlive(
                    "writable arrays of columns are alive",
                    found=", ".join(map(repr, written))[:500],
                    where=f"the table {self.name!r}",
                    hint="Delete them, and what was sliced from them, before publish().",
                )
            for _, buffer in filled:
                buffer.freeze()
        return self._publish(self.name, self._batch, **options)

    def __reduce__(self) -> NoReturn:
        raise NotPicklable(
            "an EmptyTable belongs to its process", hint="Send the Endpoint that publish returned."
        )

    def __repr__(self) -> str:
        columns = ", ".join(self.schema.names)
        return f"<EmptyTable {self.name!r}: {self.num_rows} rows of {columns} on {self._batch.device.name}>"


def _rows_of(rows: Any) -> int:
    try:
        count = operator.index(rows)
    except TypeError:
        count = -1
    if not 0 <= count < _MOST_ROWS or isinstance(rows, bool):
        raise UsageError("not a number of rows", expected="an integer, 0 or more", found=repr(rows)[:80])
    return count


def _leaf(layout: Layout, index: int, rows: int) -> tuple[int, int]:
    """Return which buffer has the values of a column of fixed width, and its size in bytes."""
    path = layout.nodes[index].path
    while layout.nodes[index].type.id == pa.lib.Type_FIXED_SIZE_LIST:
        rows *= storage_type(layout.nodes[index].type).list_size
        [index] = layout.nodes[index].children
    node = layout.nodes[index]
    if node.buffer_kinds not in _FIXED_WIDTH or node.dictionary_id is not None:
        raise Unsupported(
            "only columns of a fixed width are filled in place",
            expected="numbers, times, Booleans, decimals, bytes of a fixed width, or lists of a fixed size of such",
            found=str(node.dictionary_type or node.type),
            where=".".join(path),
            hint="publish() a table, or append() batches, of other columns.",
        )
    bits = node.bits or 1
    return int(layout.first_buffers()[index]) + 1, (rows * bits + 7) >> 3
