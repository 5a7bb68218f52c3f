"""What the columns of a file are: their physical, logical and Arrow types."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import pyarrow as pa

from bowstring.columnar.marks import NAME_KEY
from bowstring.errors import Unsupported
from bowstring.limits import Limits, limits_or_default
from bowstring.parquet.columns import leaf_fields, variants_of
from bowstring.parquet.file import OpenFile
from bowstring.parquet.footer import Footer, decode_footer, footer_bytes
from bowstring.parquet.source import open_source
from bowstring.parquet.types import LOGICAL_KEY


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
        What it is read as; ``None`` where it cannot be read.
    mark
        What its field is marked as, where the Arrow type is not all: an extension type such as ``geoarrow.wkb``, or
        a logical type such as ``ENUM``. Empty without any.
    """

    path: tuple[str, ...]
    physical: str | None
    logical: str | None
    repetition: str
    arrow: Any
    mark: str = ""


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
        rows = [("column", "repetition", "physical", "logical", "Arrow")]
        for each in self.columns:
            kind, arrow = (each.physical, read_as(each)) if each.physical else ("group", "Variant")
            rows.append((".".join(each.path), each.repetition, kind, each.logical or "", arrow))
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
        )
        return "\n".join(line.rstrip() for line in lines)


def read_as(column: ColumnType) -> str:
    """Return the Arrow type of a column of values as text, with what it is marked as."""
    if column.arrow is None:
        return "not read"
    return f"{column.arrow}, marked {column.mark}" if column.mark else str(column.arrow)


def read_schema(source: Any, *, limits: Limits | None = None) -> ParquetSchema:
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
    MissingFile
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
    limits = limits_or_default(limits)
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
    return _described(file.footer, file.schema, {*file.refusals, *file.encrypted()})


def _described(footer: Footer, schema: pa.Schema | None, refused: Collection[int] = ()) -> ParquetSchema:
    """Return the types of the columns of a footer; of the leaves that are refused, nothing is read."""
    fields: list[Any] = [] if schema is None else list(leaf_fields(schema))
    for leaf in refused:
        fields[leaf] = None
    groups = {} if schema is None else {each.leaves[0]: each.field.type for each in variants_of(schema)}
    columns = []
    for node in footer.nodes():
        element = node.element
        is_group = element.physical is None
        if is_group and (element.logical is None or element.logical.name != "VARIANT"):
            continue
        field = fields[node.first_leaf] if fields and not is_group else None
        arrow = groups.get(node.first_leaf) if is_group else None if field is None else field.type
        mark = ("arrow.parquet.variant" if is_group else "") if field is None else _mark(field)
        columns.append(
            ColumnType(node.path, element.physical_type, element.logical_type, element.occurs, arrow, mark)
        )
    return ParquetSchema(tuple(columns), schema)


def _mark(field: pa.Field) -> str:
    metadata = field.metadata or {}
    return (metadata.get(NAME_KEY) or metadata.get(LOGICAL_KEY) or b"").decode(errors="replace")
