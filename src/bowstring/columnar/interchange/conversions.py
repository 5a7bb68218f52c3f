"""Conversions to pandas, polars and Python, which batches, columns and streams share: those of pyarrow."""

from __future__ import annotations

import abc
import contextlib
import html
import importlib
from typing import Any, Final

import pyarrow as pa

from bowstring.columnar.interchange.polars import polars_frame
from bowstring.columnar.marks import is_variant
from bowstring.errors import BowstringError, MissingDependency

__all__ = ["SHOWN_ROWS", "Converting", "needed", "shown_rows", "shown_variants", "table_of_rows"]

SHOWN_ROWS: Final = 10
"""Rows that notebooks show."""
_SHOWN_COLUMNS: Final = 20
_SHOWN_TEXT: Final = 60
_SHOWN_VARIANTS: Final = 3


class Converting(abc.ABC):
    """Converts by way of pyarrow; data of a device are copied to the host."""

    __slots__ = ()

    @abc.abstractmethod
    def _as_pyarrow(self) -> Any:
        """Return the data as a table, a batch or an array of pyarrow's, extension types included."""

    def to_pandas(self, **options: Any) -> Any:
        """Return a ``pandas.DataFrame``, or of a column a ``pandas.Series``.

        Parameters
        ----------
        **options
            Those of pyarrow's ``to_pandas``.

        Raises
        ------
        MissingDependency
            pandas is not installed.

        Examples
        --------
        >>> from bowstring import Batch
        >>> Batch.from_arrow({"a": [1, 2]}).to_pandas()["a"].sum()
        np.int64(3)
        """
        needed("pandas")
        return self._as_pyarrow().to_pandas(**options)

    def to_polars(self) -> Any:
        """Return a ``polars.DataFrame``, or of a column a ``polars.Series``, without a copy where polars can.

        Runs and views of lists are decoded. Timestamps whose zone is an offset that polars has no zone for, such as
        ``+05:30``, are the same instants in UTC; seconds become milliseconds, and decimals those of 128 bits.

        Raises
        ------
        Unsupported
            polars has no type for a column (unions, intervals, decimals of more than 38 digits, unknown time
            zones), or its type cannot hold a value; the message names the column.
        LimitExceeded
            A column cannot be decoded in the memory that there is.
        MissingDependency
            polars is not installed.

        Examples
        --------
        >>> from bowstring import Batch
        >>> Batch.from_arrow({"a": [1, 2]}).to_polars().shape
        (2, 1)
        """
        return polars_frame(self._as_pyarrow(), needed("polars"))

    def to_pylist(self) -> list[Any]:
        """Return the rows as Python objects: of a batch a dict each, of a column its values.

        Examples
        --------
        >>> from bowstring import Batch
        >>> batch = Batch.from_arrow({"a": [1, None]})
        >>> batch.to_pylist(), batch["a"].to_pylist()
        ([{'a': 1}, {'a': None}], [1, None])
        """
        result: list[Any] = self._as_pyarrow().to_pylist()
        return result


def shown_variants(column: Any) -> str:
    """Return the first rows of a Variant column as JSON, in one line; nothing of one that cannot be read."""
    try:
        texts = importlib.import_module("bowstring.variant").to_json(column[:_SHOWN_VARIANTS]).to_pylist()
    except BowstringError:
        return ""
    more = ["…"] if len(column) > _SHOWN_VARIANTS else []
    return ", ".join([*(str(None) if text is None else _short(text) for text in texts), *more])


def shown_rows(batch: Any) -> pa.RecordBatch:
    """Return the first rows of a batch on the host for `table_of_rows`: Variants as JSON."""
    some = batch.slice(0, SHOWN_ROWS).to_device("cpu")
    columns = list(some.to_arrow().columns)
    for place, field in enumerate(some.schema):
        if is_variant(field):
            with contextlib.suppress(BowstringError):  # else their bytes are shown
                texts = importlib.import_module("bowstring.variant").to_json(some[place])
                columns[place] = texts.to_arrow().cast(pa.large_string())
    return pa.RecordBatch.from_arrays(columns, names=some.schema.names)


def table_of_rows(title: str, schema: pa.Schema, rows: pa.RecordBatch) -> str:
    """Return HTML: a title, the columns with their types, and some rows.

    Examples
    --------
    >>> batch = pa.record_batch({"a": ["<b>"]})
    >>> "<td>&#x27;&lt;b&gt;&#x27;</td>" in table_of_rows("a batch", batch.schema, batch)
    True
    """
    fields = list(schema)[:_SHOWN_COLUMNS]
    columns = [rows.column(place) for place in range(len(fields))]
    heads = "".join(f"<th>{_cut(each.name)}<br><small>{_cut(_type_of(each))}</small></th>" for each in fields)
    lines = "".join(
        f"<tr>{''.join(f'<td>{_cut(_shown(column[row]))}</td>' for column in columns)}</tr>"
        for row in range(min(rows.num_rows, SHOWN_ROWS))
    )
    more = len(schema) - len(fields)
    note = f"<p>and {more} more columns</p>" if more else ""
    return f"<p>{html.escape(title)}</p><table><tr>{heads}</tr>{lines}</table>{note}"


def _type_of(field: pa.Field) -> str:
    return "variant" if is_variant(field) else str(field.type)


def _shown(value: pa.Scalar) -> str:
    try:
        return repr(value.as_py())
    except (ValueError, OverflowError, pa.ArrowException):  # what Python has no value for
        return str(value)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_TEXT else f"{text[: _SHOWN_TEXT - 1]}…"


def _cut(text: str) -> str:
    return html.escape(_short(text))


def needed(name: str) -> Any:
    """Import the package that ``to_name()`` converts to.

    Raises
    ------
    MissingDependency
        It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingDependency(f"to_{name}() needs {name}", hint=f"pip install {name}") from error
