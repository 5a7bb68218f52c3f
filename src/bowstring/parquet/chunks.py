"""The column chunks of a footer, where they are and what they say, read without pyarrow.

pyarrow ends the process where it is asked about a column chunk whose size statistics contradict the schema, so
each one is looked at here before (:func:`check_chunks`). Nothing in a footer says how long a chunk is: all that
come before one are passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bowstring.errors import InvalidMetadata, Unsupported
from bowstring.parquet.thrift import LIST, STRUCT, Field, Reader

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from bowstring.parquet.footer import Footer

__all__ = ["META_DATA", "check_chunks", "chunks_of", "group_reader", "inside"]

# Numbers of fields in parquet.thrift.
_SCHEMA, _ROW_GROUPS, _COLUMNS = 2, 4, 1
META_DATA: Final = 3
_TYPE: Final = 1
_CRYPTO: Final = 8
_SIZES: Final = 16
_TEXT_BYTES, _REPETITIONS, _DEFINITIONS = 1, 2, 3
_DEPTH: Final = 64


def group_reader(footer: Footer) -> Reader | None:
    """Return a reader at the list of the row groups, ``None`` where the footer has none."""
    reader = Reader(footer.rest, _DEPTH)
    last = _SCHEMA
    while (header := reader.header(last)) is not None:
        last, kind = header
        if last == _ROW_GROUPS and kind == LIST:
            return reader
        reader.skip(kind)
    return None


def chunks_of(footer: Footer, leaves: Collection[int]) -> Iterator[dict[int, list[Field]]]:
    """Yield, for each row group, the fields of the column chunks of some columns of values, as far as it has them.

    Raises
    ------
    InvalidMetadata, Truncated, LimitExceeded
        The bytes are not the encoding of a footer.
    """
    reader = group_reader(footer)
    if reader is None:
        return
    size, kind = reader.list_header()
    for _ in range(size if kind == STRUCT else 0):
        found: dict[int, list[Field]] = {}
        last = 0
        while (header := reader.header(last)) is not None:
            last, kind = header
            if last == _COLUMNS and kind == LIST:
                found = _chunks(reader, leaves)
            else:
                reader.skip(kind)
        yield found


def _chunks(reader: Reader, leaves: Collection[int]) -> dict[int, list[Field]]:
    size, kind = reader.list_header()
    if kind != STRUCT:
        raise InvalidMetadata("column chunks are structs", expected=STRUCT, found=kind)
    found = {}
    for leaf in range(size):
        if leaf in leaves:
            found[leaf] = reader.struct()
        else:
            reader.skip(STRUCT)
    return found


def inside(fields: list[Field] | None, number: int) -> list[Field] | None:
    """Return the fields of a struct that is a field of another, ``None`` where there is none."""
    value = next((each.value for each in fields or () if each.id == number and each.kind == STRUCT), None)
    return Reader(value, _DEPTH).struct() if isinstance(value, bytes) else None


def check_chunks(footer: Footer, schema: Any, leaves: Collection[int]) -> None:
    """Raise an error for column chunks that pyarrow must not be asked about.

    Parameters
    ----------
    footer
        The footer.
    schema
        A ``pyarrow.parquet.ParquetSchema``, for the levels of each column.
    leaves
        The numbers of the columns of values.

    Raises
    ------
    InvalidMetadata
        A chunk has another physical type than its column, histograms for other levels, or bytes of text where there
        is no text.
    Unsupported
        A column is encrypted.
    """
    physical = [element.physical for element in footer.schema if element.physical is not None]
    for number, group in enumerate(chunks_of(footer, leaves)):
        for leaf, chunk in group.items():
            column = schema.column(leaf)
            try:
                _check_chunk(chunk, physical[leaf], column)
            except InvalidMetadata as error:
                error.where = f"row group {number}, column {column.path}"
                raise


def _check_chunk(chunk: list[Field], physical: int, column: Any) -> None:
    if any(each.id == _CRYPTO for each in chunk):
        raise Unsupported("encrypted columns of Parquet files", where=column.path)
    data = inside(chunk, META_DATA)
    if data is None:
        raise InvalidMetadata("a column chunk has no metadata")
    found = next((each.value for each in data if each.id == _TYPE), None)
    if found != physical:
        raise InvalidMetadata("a column chunk has another physical type", expected=physical, found=found)
    sizes = {each.id: each for each in inside(data, _SIZES) or ()}
    if _TEXT_BYTES in sizes and column.physical_type != "BYTE_ARRAY":
        raise InvalidMetadata(
            "a column chunk counts bytes of text", expected="BYTE_ARRAY", found=column.physical_type
        )
    for number, most in (
        (_REPETITIONS, column.max_repetition_level),
        (_DEFINITIONS, column.max_definition_level),
    ):
        value = sizes[number].value if number in sizes else None
        size = Reader(value, _DEPTH).list_header()[0] if isinstance(value, bytes) else 0
        if size not in (0, most + 1):
            raise InvalidMetadata(
                "a histogram of levels contradicts the schema", expected=f"{most + 1} levels", found=size
            )
