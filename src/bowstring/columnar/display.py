"""What notebooks show: of batches the columns with their types and the first rows, of other objects their facts."""

from __future__ import annotations

import contextlib
import datetime as dt
import html
import importlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from bowstring.columnar.column import ColumnData
from bowstring.columnar.interchange.export import to_pyarrow_batch
from bowstring.columnar.marks import is_variant
from bowstring.columnar.parts import BatchData
from bowstring.columnar.validation import checked_rows
from bowstring.errors import BowstringError, InvalidData, MissingDependency

SHOWN_ROWS: Final = 10  # rows that notebooks show
_SHOWN_COLUMNS: Final = 20
_SHOWN_BYTES: Final = 16
_SHOWN_TEXT: Final = 60
_SHOWN_VARIANTS: Final = 3


def table_of_batch(title: str, batch: BatchData, num_rows: int | None = None) -> str:
    """Return HTML: a title, the columns with their types, and the first rows, or why there are none to show.

    `num_rows` are those of the data set that the batch begins.
    """
    try:
        some = checked_rows(batch, SHOWN_ROWS)
    except (InvalidData, MissingDependency) as error:  # wrong, or on a GPU that only CuPy takes slices of
        return f"<p>{html.escape(title)}</p><p>{html.escape(str(error))}</p>"
    rows, schema = to_pyarrow_batch(some), batch.schema
    columns = list(rows.columns)[:_SHOWN_COLUMNS]
    heads = []
    for place, field in enumerate(list(schema)[:_SHOWN_COLUMNS]):
        if is_variant(field):  # as JSON
            with contextlib.suppress(BowstringError):  # else their bytes are shown
                texts = importlib.import_module("bowstring.variant").to_json(rows.select([place]))
                columns[place] = texts.to_arrow().cast(pa.large_string())
        type_ = "variant" if is_variant(field) else str(field.type)
        heads.append(f"{_cut(field.name)}<br><small>{_cut(type_)}</small>")
    shown, whole = min(rows.num_rows, SHOWN_ROWS), num_rows or batch.num_rows
    lines = [[_cell(column[row]) for column in columns] for row in range(shown)]
    notes = []
    if whole > shown > 0:
        notes.append(f"{shown} of {whole:,} rows")
    if len(schema) > len(columns):
        notes.append(f"{len(columns)} of {len(schema):,} columns")
    foot = f"<p>{', '.join(notes)}</p>" if notes else ""
    return f"<p>{html.escape(title)}</p>{_table(heads, lines)}{foot}"


def table_of_facts(title: str, heads: Sequence[str], facts: Iterable[Sequence[object]]) -> str:
    """Return HTML: a title, and a line for each of some facts."""
    lines = [[_cut(f"{each:,}" if type(each) is int else _written(each)) for each in fact] for fact in facts]
    return f"<p>{html.escape(title)}</p>{_table([html.escape(each) for each in heads], lines)}"


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in lines)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: pa.Scalar) -> str:
    return _cut(_shown(value)) if value.is_valid else "<i>null</i>"


def _shown(value: pa.Scalar) -> str:
    try:
        return _begun(value)
    except (ValueError, OverflowError, LookupError, pa.ArrowException):  # what Python has no value for
        pass
    try:
        return str(value)
    except (ValueError, OverflowError, LookupError, pa.ArrowException):  # two fields of one name
        return f"({value.type})"


def _begun(value: pa.Scalar) -> str:
    """Return a value as `_written` does, of a long one only the beginning: Python objects are for that alone."""
    if value.is_valid:
        if isinstance(value, pa.MapScalar):
            return _joined("[]", (f"[{_begun(each[0])}, {_begun(each[1])}]" for each in value.values))
        if isinstance(value, pa.ListScalar):
            return _joined("[]", map(_begun, value.values))
        if isinstance(value, pa.StructScalar):
            return _joined("{}", (f"{name}: {_begun(each)}" for name, each in value.items()))
    return _written(value.as_py())


def _joined(ends: str, parts: Iterable[str]) -> str:
    text = ""
    for part in parts:
        text = f"{text}, {part}" if text else part
        if shortened(text) != text:
            break
    return ends[0] + text + ends[1]


def _written(value: Any) -> str:
    """Return a value as people write it: text without quotes, times as ISO 8601 has them."""
    match value:
        case None:
            return "null"
        case str():
            return value
        case dt.datetime():
            return value.isoformat(" ")
        case dt.date() | dt.time():
            return value.isoformat()
        case bytes():
            return value[:_SHOWN_BYTES].hex(" ") + ("…" if len(value) > _SHOWN_BYTES else "")
        case _:
            return str(value)


def _cut(text: str) -> str:
    return html.escape(shortened(text))


def shown_variants(column: ColumnData[Any]) -> str:
    """Return the first rows of a Variant column as JSON, in one line; nothing of one that cannot be read."""
    try:
        some = to_pyarrow_batch(checked_rows(column.as_batch(), _SHOWN_VARIANTS))
        texts = importlib.import_module("bowstring.variant").to_json(some).to_pylist()
    except BowstringError:
        return ""
    more = ["…"] if len(column) > _SHOWN_VARIANTS else []
    return ", ".join([*(str(None) if text is None else shortened(text) for text in texts), *more])


def shortened(text: str) -> str:
    """Return the beginning of a text, where it is long."""
    return text if len(text) <= _SHOWN_TEXT else f"{text[: _SHOWN_TEXT - 1]}…"
