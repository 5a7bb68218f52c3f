"""Row groups on a device: decoded there by pylibcudf where it gives the types that pyarrow gives, else uploaded a
column at a time while the next one is decoded.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import Dictionary, batch_parts, make_batch
from bowstring.errors import InvalidData, Unsupported, first_line
from bowstring.parquet.columns import children_of
from bowstring.parquet.source import is_url

if TYPE_CHECKING:
    from bowstring.memory import Buffer, Device
    from bowstring.parquet.file import OpenFile

_SAME: Final = frozenset(
    (
        pa.bool_(),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64()),
        pa.string(),
        pa.date32(),
    )
)
"""Types that cuDF reads as pyarrow does: its decimals have other digits, its times are durations."""
_UNITS: Final = ("ms", "us", "ns")


class DeviceDecoder:
    """Decodes columns of a file on a device."""

    def __init__(
        self, path: str, columns: list[int], schema: pa.Schema, positions: tuple[int, ...], device: Device
    ) -> None:
        # columns: numbers in the file, ascending; positions: of these among the columns that are read
        self._path = path
        self._columns = columns
        self._schema = schema
        self._device = device
        self.positions = positions

    def read(self, group: int) -> Batch | None:
        """Return the columns of a row group, ``None`` where cuDF has other types, such as for long text."""
        parquet = importlib.import_module("pylibcudf.io.parquet")
        types = importlib.import_module("pylibcudf.io.types")
        with self._device.use():
            try:
                builder = parquet.ParquetReaderOptions.builder(types.SourceInfo([self._path]))
                # An index of pandas' would be a column more.
                options = builder.column_indices(self._columns).use_pandas_metadata(False).build()
                options.set_row_groups([[group]])
                found = parquet.read_parquet(options).tbl
                schema, array = found.__arrow_c_device_array__()
            except (
                RuntimeError,
                ValueError,
                TypeError,
                OSError,
            ) as error:  # what C++ throws is a RuntimeError
                kind = Unsupported if isinstance(error, TypeError) else InvalidData
                raise kind(
                    "cuDF cannot read the Parquet file", found=first_line(error), where=self._path
                ) from error
            types_found = pa.Schema._import_from_c_capsule(schema).types
            if len(types_found) != len(self._schema) or not all(
                map(_is_alike, types_found, self._schema.types)
            ):
                return None
            return Batch.from_arrow(_Named(self._schema, array))


class _Named:
    """Columns of a device under another schema: libcudf's have neither names nor time zones."""

    def __init__(self, schema: pa.Schema, array: Any) -> None:
        self._capsules = schema.__arrow_c_schema__(), array

    def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> Any:
        return self._capsules


def device_decoder(
    file: OpenFile, source: Any, schema: pa.Schema, leaves: Sequence[tuple[int, ...]], device: Device
) -> DeviceDecoder | None:
    """Return what decodes columns of a file on a device; ``None`` without pylibcudf, or where it cannot."""
    # source: what the file was opened from, since pylibcudf reads local files only
    # leaves: the numbers of the leaves of each column; none for a column by path
    if device.is_host or not isinstance(source, str | os.PathLike) or is_url(source):
        return None
    names = file.schema.names
    numbers = {
        names.index(field.name): position
        for position, field in enumerate(schema)
        # A column of which some leaves are read has another type here; INT96 wraps around in cuDF.
        if leaves[position]
        and names.count(field.name) == 1
        and file.schema.field(field.name).type.equals(field.type)
        and _is_same(field.type)
        and not any(leaf in file.meanings for leaf in leaves[position])
    }
    if not numbers or not _has_pylibcudf():
        return None
    columns = sorted(numbers)
    positions = tuple(numbers[column] for column in columns)
    wanted = pa.schema([schema.field(position) for position in positions])
    return DeviceDecoder(os.fsdecode(os.fspath(source)), columns, wanted, positions, device)


def _has_pylibcudf() -> bool:
    """Return whether pylibcudf is installed, in a version that takes the numbers of columns."""
    try:
        parquet = importlib.import_module("pylibcudf.io.parquet")
    except ImportError:
        return False
    return hasattr(parquet.ParquetReaderOptionsBuilder, "column_indices")


def _is_same(type_: pa.DataType) -> bool:
    """Return whether cuDF reads a type as pyarrow does."""
    if pa.types.is_timestamp(type_):
        return type_.unit in _UNITS
    if pa.types.is_struct(type_) or pa.types.is_list(type_):
        children = children_of(type_)
        return bool(children) and all(_is_same(child.type) for child in children)
    return type_ in _SAME


def _is_alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a type of libcudf's is another one but for names, nullability and time zones."""
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        return bool(found.unit == wanted.unit)
    inside, expected = children_of(found), children_of(wanted)
    if inside or expected:
        return (
            found.id == wanted.id
            and len(inside) == len(expected)
            and all(_is_alike(one.type, other.type) for one, other in zip(inside, expected, strict=True))
        )
    return bool(found.equals(wanted))


def beside(parts: Sequence[tuple[Sequence[Batch], Sequence[int]]], schema: pa.Schema) -> Iterator[Batch]:
    """Yield batches of the columns of several parts, which have the same rows."""
    # Text of more than 2 GiB divides a part into several batches.
    ends = {
        int(end) for batches, _ in parts for end in np.cumsum([batch.num_rows for batch in batches]).tolist()
    }
    begin = 0
    for end in sorted(ends - {0}):
        columns: dict[int, tuple[Batch, int]] = {}
        for batches, positions in parts:
            batch = _rows(batches, begin, end)
            columns.update((position, (batch, column)) for column, position in enumerate(positions))
        yield _joined([columns[position] for position in range(len(schema))], schema, end - begin)
        begin = end


def _rows(batches: Iterable[Batch], begin: int, end: int) -> Batch:
    first = 0
    for batch in batches:
        if begin < first + batch.num_rows:
            whole = begin == first and end == first + batch.num_rows
            return batch if whole else batch.slice(begin - first, end - begin)
        first += batch.num_rows
    raise InvalidData("the columns of a row group have different rows", expected=end, found=first)


def _joined(columns: Sequence[tuple[Batch, int]], schema: pa.Schema, rows: int) -> Batch:
    """Return columns of several batches of one device as one batch, without a copy."""
    device = columns[0][0].device
    nodes, ids = [], []
    buffers: list[Buffer | None] = []
    counts: list[int] = []
    dictionaries: dict[int, Dictionary] = {}
    known: dict[tuple[int, int], int] = {}
    for batch, position in columns:
        one = batch if batch.num_columns == 1 else batch.select([position])
        for id_ in one.layout.dictionary_ids:
            new = known.setdefault((id(batch), id_), len(known))
            dictionaries[new] = Dictionary(new, one.dictionaries[id_].values)
            ids.append(new)
        nodes.append(batch_parts(one).nodes)
        buffers += one.buffers
        counts += batch_parts(one).variadic_counts
    return make_batch(
        Batch,
        Layout.of(schema, ids),
        rows,
        np.concatenate(nodes),
        buffers,
        counts,
        dictionaries,
        device=device,
    )
