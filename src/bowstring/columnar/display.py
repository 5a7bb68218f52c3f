"""What notebooks show of batches: the columns with their types, and the first rows."""

from __future__ import annotations

import contextlib
import html
import importlib
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from bowstring.columnar.interchange.conversions import shortened
from bowstring.columnar.marks import is_variant
from bowstring.columnar.validation import checked_rows
from bowstring.errors import BowstringError, InvalidData

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch

SHOWN_ROWS: Final = 10
"""Rows that notebooks show."""
_SHOWN_COLUMNS: Final = 20


def table_of_batch(title: str, batch: Batch) -> str:
    """Return HTML: a title, the columns with their types, and the first rows, or what is wrong with these."""
    try:
        some = checked_rows(batch, SHOWN_ROWS)
    except InvalidData as error:
        return f"<p>{html.escape(title)}</p><p>{html.escape(str(error))}</p>"
    return table_of_rows(title, batch.schema, _shown_rows(some))


def _shown_rows(some: Batch) -> pa.RecordBatch:
    """Return rows that are right for `table_of_rows`: Variants as JSON."""
    columns = list(some.to_arrow().columns)
    for place, field in enumerate(some.schema):
        if is_variant(field):
            with contextlib.suppress(BowstringError):  # else their bytes are shown
                texts = importlib.import_module("bowstring.variant").to_json(some[place])
                columns[place] = texts.to_arrow().cast(pa.large_string())
    return pa.RecordBatch.from_arrays(columns, names=some.schema.names)


def table_of_rows(title: str, schema: pa.Schema, rows: pa.RecordBatch) -> str:
    """Return HTML: a title, the columns with their types, and some rows."""
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
    except (ValueError, OverflowError, LookupError, pa.ArrowException):  # what Python has no value for
        pass
    try:
        return str(value)
    except (ValueError, OverflowError, LookupError, pa.ArrowException):  # two fields of one name
        return f"({value.type})"


def _cut(text: str) -> str:
    return html.escape(shortened(text))
