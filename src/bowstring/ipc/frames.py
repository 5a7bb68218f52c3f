"""pandas data frames as streams, as pyarrow has them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from bowstring.ipc.stream import new_stream, open_stream

__all__ = ["deserialize_pandas", "serialize_pandas"]


def serialize_pandas(
    df: Any, *, nthreads: int | None = None, preserve_index: bool | None = None
) -> pa.Buffer:
    """Return a ``pandas.DataFrame`` as a stream of one batch.

    Parameters
    ----------
    df
        The data frame.
    nthreads
        Threads that pyarrow may use to convert it; all processors by default.
    preserve_index
        Whether the index becomes a column; by default a ``RangeIndex`` becomes metadata, and any other a column.

    Examples
    --------
    >>> import pandas as pd
    >>> deserialize_pandas(serialize_pandas(pd.DataFrame({"a": [1, 2]})))["a"].tolist()
    [1, 2]
    """
    batch = pa.RecordBatch.from_pandas(df, nthreads=nthreads, preserve_index=preserve_index)
    sink = pa.BufferOutputStream()
    with new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def deserialize_pandas(buf: Any, *, use_threads: bool = True) -> Any:
    """Return the ``pandas.DataFrame`` of a stream.

    Parameters
    ----------
    buf
        What :func:`serialize_pandas` gave; anything with the buffer protocol.
    use_threads
        Whether pyarrow may convert columns by several threads.

    Raises
    ------
    InvalidData
        It is not a stream.

    Examples
    --------
    >>> import pandas as pd
    >>> deserialize_pandas(serialize_pandas(pd.DataFrame({"a": ["x"]}, index=[7]))).index.tolist()
    [7]
    """
    with open_stream(buf) as reader:
        return reader.read_pandas(use_threads=use_threads)
