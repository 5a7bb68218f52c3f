"""What the columns of a file are: their physical, logical and Arrow types."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa

from bowstring.errors import Unsupported
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.parquet.columns import leaf_types, variants_of
from bowstring.parquet.file import OpenFile
from bowstring.parquet.footer import Footer, decode_footer, footer_bytes
from bowstring.parquet.source import open_source

__all__ = ["ColumnType", "ParquetSchema", "described", "read_schema"]


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnType:
    """A column of values, or a group that is annotated as a Variant.

    Attributes
    ----------
    path
        Names from the first level on, as ``columns`` of :func:`bowstring.parquet.read` takes them.
    physical
        The physical type, with the length of a fixed one; ``None`` for a group.
    logical
        The logical type with its parameters, in its old spelling where the file has no other; ``None`` without any.
    repetition
        ``required``, ``optional`` or ``repeated``.
    arrow : pyarrow.DataType or None
        What it is read as; ``None`` where pyarrow cannot read the file.
    """

    path: tuple[str, ...]
    physical: str | None
    logical: str | None
    repetition: str
    arrow: Any


@dataclasses.dataclass(frozen=True, slots=True)
class ParquetSchema:
    """The columns of a file; ``str()`` gives them as a table.

    Attributes
    ----------
    columns
        In the order of the file; the group of a Variant stands before its columns.
    arrow : pyarrow.Schema or None
        What the file is read as, Variants marked; ``None`` where pyarrow cannot read it.
    """

    columns: tuple[ColumnType, ...]
    arrow: Any

    def __str__(self) -> str:
        rows = [("column", "repetition", "physical", "logical", "Arrow"), *map(_row, self.columns)]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
        )
        return "\n".join(line.rstrip() for line in lines)


def _row(column: ColumnType) -> tuple[str, ...]:
    arrow = "not read" if column.arrow is None else str(column.arrow)
    physical, logical = column.physical or "group", column.logical or ""
    return (
        ".".join(column.path),
        column.repetition,
        physical,
        logical,
        arrow if column.physical else "Variant",
    )


def read_schema(source: Any, *, limits: Limits = DEFAULT_LIMITS) -> ParquetSchema:
    """Read the physical, logical and Arrow types of the columns of a Parquet file.

    Only the footer is read. Types that pyarrow cannot read are shown, too.

    Parameters
    ----------
    source
        A path, a URL, a binary file, or bytes.
    limits
        Bounds on the footer: see :class:`bowstring.Limits`.

    Raises
    ------
    UsageError
        There is no such file.
    InvalidData
        It is not a Parquet file, or a damaged one.
    Unsupported
        It is encrypted.
    LimitExceeded
        The footer is larger than the bounds.

    Examples
    --------
    >>> import bowstring as bow, io, pyarrow.parquet as pq
    >>> file = io.BytesIO()
    >>> pq.write_table(pa.table({"id": [1], "at": pa.array([0], pa.timestamp("ms", "UTC"))}), file)
    >>> print(bow.parquet.read_schema(file.getvalue()))
    column  repetition  physical  logical                 Arrow
    id      optional    INT64                             int64
    at      optional    INT64     TIMESTAMP(MILLIS, UTC)  timestamp[ms, tz=UTC]
    """
    try:
        file = OpenFile(source, limits)
    except Unsupported:
        opened = open_source(source)
        return _described(decode_footer(footer_bytes(opened, limits), limits), None)
    try:
        return described(file)
    finally:
        file.close()


def described(file: OpenFile) -> ParquetSchema:
    """Return the types of the columns of a file that is open."""
    return _described(file.footer, file.schema)


def _described(footer: Footer, schema: pa.Schema | None) -> ParquetSchema:
    arrow = None if schema is None else list(leaf_types(schema))
    groups = {} if schema is None else {each.leaves[0]: each.field.type for each in variants_of(schema)}
    columns = []
    for node in footer.nodes():
        element = node.element
        is_group = element.physical is None
        if is_group and (element.logical is None or element.logical.name != "VARIANT"):
            continue
        found = groups.get(node.first_leaf) if is_group else arrow[node.first_leaf] if arrow else None
        columns.append(
            ColumnType(node.path, element.physical_type, element.logical_type, element.occurs, found)
        )
    return ParquetSchema(tuple(columns), schema)
