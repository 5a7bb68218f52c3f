"""RAPIDS: batches of a GPU as CuPy arrays and as cuDF's DataFrames, and cuDF's data as batches.

cuDF speaks Arrow through pylibcudf, whose tables know ``__arrow_c_device_array__`` in both directions but have no
names; those travel beside it. A pylibcudf table keeps the struct that it took until its last column is gone, and so
our memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.interchange.conversions import needed
from bowstring.columnar.interchange.libcudf_types import in_types_of_libcudf
from bowstring.columnar.interchange.to_array import array_without_nulls, warn_of_writes
from bowstring.columnar.layout import Layout
from bowstring.columnar.nodes import Kind, storage_type
from bowstring.columnar.parts import AnyBatch, BatchData, Dictionary, batch_parts, derived
from bowstring.columnar.spans import Spans, buffer_of
from bowstring.errors import NotExportable, NotOnDevice, Unsupported, UsageError

_WORD: Final = 4  # libcudf reads bitmaps by words of so many bytes
_WIDEST: Final = 16  # bytes that a GPU loads at once


class RapidsExport:
    """Hands columns to CuPy and cuDF."""

    __slots__ = ()

    def to_cupy(self: Any, *, na_value: Any = None) -> dict[str, Any]:
        """Return the columns as CuPy arrays by name, over the same memory: numbers, and lists of them of one size.

        The arrays must not be written, which CuPy cannot prevent: what a producer lent is mapped read-only, so that
        a kernel that writes it fails, or, where the driver maps nothing read-only, is seen by all readers. One
        warning in a process says so. Booleans, which Arrow packs, are unpacked on the device.

        Parameters
        ----------
        na_value
            What nulls become, as in ``cudf.DataFrame.to_cupy``; columns that have some are copied then.

        Raises
        ------
        NotExportable
            A column holds something else, such as text or times, or has nulls and there is no `na_value`; it is
            named. Two columns have one name.
        NotOnDevice
            The batch is on the host.

        Examples
        --------
        >>> from bowstring import Batch
        >>> Batch.from_arrow({"a": [1, 2]}).to_cupy()
        Traceback (most recent call last):
          ...
        bowstring.errors.NotOnDevice: the batch is on the host. Copy it first: batch.to_device("cuda:0").
        """
        _check_device(self)
        warn_of_writes(self)
        names = _names(self.schema, "the batch")
        return {
            name: array_without_nulls(column, na_value)
            for name, column in zip(names, self.columns, strict=True)
        }

    def to_cudf(self: Any) -> Any:
        """Return a ``cudf.DataFrame`` over the same memory.

        libcudf copies Booleans, which it has as bytes, and views of text. What lies where it cannot read,
        such as bitmaps of some slices, is copied on the device before. So is what cuDF has another type for:
        dictionaries and run ends are decoded, other lists and maps become lists, half floats
        ``float32``, ``date64`` timestamps. The batch cannot be released while the DataFrame lives, which must not
        be written. Metadata and names of extension types stay behind.

        Raises
        ------
        MissingDependency
            cuDF is not installed.
        NotOnDevice
            The batch is on the host.
        NotExportable
            Two columns, or two fields of a struct, have one name.
        Unsupported
            libcudf has no type for a column, such as binary, times of day, unions or decimals of 256 bits, or does
            not count so many rows; the column is named.
        """
        _check_device(self)
        pylibcudf, cudf = (
            needed(each, "to_cudf", "cudf-cu13, or cudf-cu12") for each in ("pylibcudf", "cudf")
        )
        names = _names(self.schema, "the batch")
        batch = in_types_of_libcudf(self)
        metadata: dict[str, Any] = {
            "columns": names,
            "child_names": {field.name: _child_names(field.type, field.name) for field in batch.schema},
        }
        if not names:
            metadata["index"] = cudf.RangeIndex(self.num_rows)
        aligned = aligned_for_libcudf(batch)
        try:
            table = pylibcudf.Table.from_arrow(aligned)
        except (TypeError, ValueError, RuntimeError) as error:  # what C++ throws comes as RuntimeError
            raise Unsupported(
                "libcudf does not take the batch", found=str(error), hint="select() leaves columns out."
            ) from error
        return cudf.DataFrame.from_pylibcudf(table, metadata)


def _check_device(batch: BatchData) -> None:
    if batch.device.is_host:
        raise NotOnDevice("the batch is on the host", hint='Copy it first: batch.to_device("cuda:0").')


def _names(fields: Iterable[pa.Field], where: str) -> list[str]:
    """Return the names of some fields, which cuDF takes as keys of a dict."""
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise NotExportable(
            "several columns have one name, which cuDF cannot tell apart", found=names, where=where
        )
    return names


def _child_names(type_: pa.DataType, where: str) -> dict[str, Any]:
    """Return the names inside a type as cuDF's readers give them: libcudf's columns carry none."""
    type_ = storage_type(type_)
    if pa.types.is_struct(type_):
        fields = [type_.field(index) for index in range(type_.num_fields)]
        return {
            name: _child_names(field.type, where)
            for name, field in zip(_names(fields, where), fields, strict=True)
        }
    if pa.types.is_list(type_):
        return {"offsets": {}, "element": _child_names(type_.value_type, where)}
    return {}


def aligned_for_libcudf(batch: AnyBatch) -> AnyBatch:
    """Return the batch, in types of libcudf, with copies of unaligned buffers, which libcudf cannot read.

    Offsets without rows, which Arrow may leave out, become a zero.
    """
    parts, device = batch_parts(batch), batch.device
    layout, spans = parts.layout, parts.spans
    kinds, rows = layout.buffer_kinds, layout.fixed_buffers(parts.variadic_counts)
    widths = layout.buffer_bits >> 3
    # The greatest power of two in the width of an element.
    units = np.minimum(np.maximum(widths & -widths, 1), _WIDEST)
    units[(kinds == Kind.VALIDITY) | (kinds == Kind.BITS)] = _WORD
    addresses = spans.addresses()[rows]
    absent = ((kinds == Kind.OFFSETS32) | (kinds == Kind.OFFSETS64)) & (addresses == 0)
    replaced = np.flatnonzero((addresses % units != 0) | absent).tolist()
    if not replaced:
        return batch
    table, regions = spans.table.copy(), list(spans.regions)
    for position in replaced:
        row = int(rows[position])
        with device.use():
            array = (
                device.xp.zeros(int(widths[position]), np.uint8)
                if absent[position]
                else spans.array(row).copy()
            )
        buffer = buffer_of(array, device)
        table[row] = len(regions), 0, buffer.nbytes
        regions.append(buffer.region)
    return derived(batch, parts._replace(spans=Spans(table, regions)), batch.num_rows)


def arrow_of_cudf(source: Any) -> tuple[Any, Mapping[Any, Any]] | None:
    """Return what of a ``cudf.DataFrame`` speaks the C Device interface, and its dtypes by name; else ``None``.

    cuDF's other interfaces to Arrow copy to the host.
    """
    if not hasattr(source, "to_pylibcudf") or not hasattr(source, "dtypes"):
        return None
    table, metadata = source.to_pylibcudf()
    if not hasattr(table, "__arrow_c_device_array__"):
        return None
    index = type(metadata.get("index")).__name__
    if index not in ("RangeIndex", "NoneType"):
        raise UsageError(
            "the DataFrame has an index, which Arrow does not know",
            found=index,
            hint="reset_index() makes columns of it, reset_index(drop=True) leaves it out.",
        )
    return table, dict(source.dtypes.items())


def with_categories(
    batch: AnyBatch, table: Any, dtypes: Mapping[Any, Any], taken: Callable[..., AnyBatch | None]
) -> AnyBatch:
    """Return codes of categoricals as dictionaries: pylibcudf has only codes, cuDF's dtypes the categories."""
    fields, ids, dictionaries = list(batch.schema), list[int](), dict(batch.dictionaries)
    for at, (node, field, dtype) in enumerate(
        zip(batch.layout.columns, batch.schema, dtypes.values(), strict=True)
    ):
        if not _is_categorical(dtype) or pa.types.is_dictionary(field.type):
            ids += batch.layout.alone(node, field).dictionary_ids
            continue
        categories, where = dtype.categories, f"column {field.name!r}"
        if not hasattr(categories, "to_pylibcudf"):
            raise Unsupported("categories that are not cuDF's", found=type(categories).__name__, where=where)
        schema, array = type(table)([categories.to_pylibcudf()[0]]).__arrow_c_device_array__()
        values = taken(schema, array, {"values": None})
        if values is None or values.device is not batch.device:
            raise Unsupported("categories on another device than their codes", where=where)
        ids.append(max(dictionaries, default=-1) + 1)
        dictionaries[ids[-1]] = Dictionary(ids[-1], values)
        encoded = pa.dictionary(field.type, values.schema.field(0).type, bool(dtype.ordered))
        fields[at] = field.with_type(encoded)
    if fields == list(batch.schema):
        return batch
    layout = Layout.of(pa.schema(fields, metadata=batch.schema.metadata), ids)
    return derived(batch, batch_parts(batch)._replace(layout=layout), batch.num_rows, dictionaries)


def _is_categorical(dtype: Any) -> bool:
    return hasattr(dtype, "categories") and hasattr(dtype, "ordered")


def with_names_of_cudf(schema: pa.Schema, dtypes: Mapping[Any, Any] | None = None) -> pa.Schema:
    """Return the schema of a pylibcudf table with what it lacks: names, and time zones from cuDF's `dtypes`.

    A schema with a named column is of another library, and stays as it is.
    """
    if dtypes is None:
        if any(schema.names):
            return schema
        dtypes = {str(index): None for index in range(len(schema))}
    fields = [
        pa.field(str(name), _type_of_cudf(field.type, dtype, str(name)), field.nullable, field.metadata)
        for field, (name, dtype) in zip(schema, dtypes.items(), strict=True)
    ]
    return pa.schema(fields, metadata=schema.metadata)


def _type_of_cudf(type_: pa.DataType, dtype: Any, where: str, *, is_inside: bool = False) -> pa.DataType:
    """Return a type with the names and time zones of a dtype of cuDF's or pandas'."""
    if is_inside and _is_categorical(dtype):
        raise Unsupported(
            "categories inside a list or a struct, of which pylibcudf gives the codes alone",
            where=f"column {where!r}",
        )
    dtype = getattr(dtype, "pyarrow_dtype", dtype)
    zone = getattr(dtype, "tz", None)
    if zone is not None and pa.types.is_timestamp(type_):
        return pa.timestamp(type_.unit, str(zone))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        inside = dtype.value_type if isinstance(dtype, pa.DataType) else getattr(dtype, "element_type", None)
        value = type_.value_field
        make = pa.list_ if pa.types.is_list(type_) else pa.large_list
        return make(value.with_type(_type_of_cudf(value.type, inside, where, is_inside=True)))
    if not pa.types.is_struct(type_) or dtype is None:
        return type_
    fields = {each.name: each.type for each in dtype} if isinstance(dtype, pa.StructType) else dtype.fields
    return pa.struct(
        [
            pa.field(name, _type_of_cudf(child.type, inside, where, is_inside=True), child.nullable)
            for child, (name, inside) in zip(type_, fields.items(), strict=True)
        ]
    )
