"""Arrow columns of any type as Variant columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.marks import is_variant
from bowstring.columnar.nodes import Kind
from bowstring.columnar.one_column import one_column
from bowstring.errors import InvalidBody, LimitExceeded, NotOnDevice, Unsupported, UsageError
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch
from bowstring.kernels.variant.metadata import inspect_metadata
from bowstring.limits import Limits, limits_or_default
from bowstring.variant.codec.primitives import metadata_bytes
from bowstring.variant.column import MetadataDictionary, metadata_values, variant_of
from bowstring.variant.shredded import encode as encoding
from bowstring.variant.shredded.layout import check_children, flags_of, is_text, list_bounds
from bowstring.variant.shredded.unshred import encode, raise_rule

if TYPE_CHECKING:
    from bowstring.columnar.batch import Column

_LARGEST: Final = (1 << 31) - 1
_LISTS: Final = (pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST)
_UNIONS: Final = (pa.lib.Type_SPARSE_UNION, pa.lib.Type_DENSE_UNION)
_LIST_VIEWS: Final = (pa.lib.Type_LIST_VIEW, pa.lib.Type_LARGE_LIST_VIEW)
_REWRITTEN: Final = (
    *(*_UNIONS, *_LIST_VIEWS, pa.lib.Type_DICTIONARY, pa.lib.Type_RUN_END_ENCODED),
    *(pa.lib.Type_DECIMAL256, pa.lib.Type_FIXED_SIZE_BINARY),
)
_MOST_DIGITS: Final = 38


def from_arrow(column: Any, *, name: str | None = None, limits: Limits | None = None) -> Column:
    """Return an Arrow column of any type as a Variant column.

    Structs and maps of text become objects, lists and other maps arrays (of objects with ``key`` and ``value``).
    Unions become the values of their children.
    Null rows become SQL NULLs, nulls inside of rows Variant nulls. Unsigned integers take the next wider type,
    those of 64 bits decimals where one is beyond int64; times, timestamps and dates the units that Variant has.

    Parameters
    ----------
    column
        A Column, a Batch of one column, or Arrow data of one column; a Variant column is returned as it is. It
        stays where it is, and so does the result.
    name
        That of the result; by default that of the column.
    limits
        ``extracted_bytes`` bounds the values.

    Returns
    -------
    Column

    Raises
    ------
    UsageError
        It is no Arrow data of one column, or a struct has two fields of one name.
    Unsupported
        A type that Variant has no values for: durations, intervals, decimals of more than 38 digits, and Variants
        inside of other columns.
    InvalidBody
        A value cannot be held without loss, text is not UTF-8, or a map has a key twice; the error names the row.
    LimitExceeded
        The values take more than the limits, or than 2 GiB.
    NotOnDevice
        On a device: dictionaries, runs, unions, views of lists, decimals of 256 bits, binary of one length and maps
        are read on the host.

    Examples
    --------
    >>> import bowstring as bow, pyarrow as pa
    >>> column = bow.variant.from_arrow(pa.array([{"b": 1, "a": [1.5, None]}, None]))
    >>> bow.variant.to_python(column)
    [{'a': [1.5, None], 'b': 1}, None]
    """
    limits = limits_or_default(limits)
    source = one_column(column, "variant")
    if is_variant(source.field):
        return source
    device = source.device
    if not _is_direct(source.field):
        if not device.is_host:
            raise NotOnDevice(
                "variant.from_arrow reads this type on the host",
                found=f"{source.type} on {device.name}",
                where=source.name,
                hint='Use column.as_batch().to_device("cpu")[0] first.',
            )
        plain = _plain(source.to_arrow())
        source = Batch.from_arrow(pa.table({source.name: plain}).combine_chunks())[0]
    xp, rows = device.xp, len(source)
    with device.use():
        names: set[str] = set()
        keys: dict[int, pa.DictionaryArray] = {}
        _collect(source, names, keys)
        ordered = sorted(names, key=str.encode)
        blob = metadata_bytes(tuple(ordered))
        data = xp.asarray(np.frombuffer(blob, np.uint8))
        slots = xp.zeros(1, np.int64), xp.full(1, len(blob), np.int64), data
        marks = xp.empty(1, np.uint8)
        launch(inspect_metadata, 1, *slots, 0, marks)
        dictionary = MetadataDictionary(xp.zeros(0, np.int32), *slots, marks)
        known = _Known(encoding.Names(device, dictionary), {name: k for k, name in enumerate(ordered)}, keys)
        present = _present(source)
        values = _bytes(source, known)
        encoded = encode(device, values, xp.zeros(rows, np.int32), present, source.name, limits)
        raise_rule(encoded.sizes, source)
        nbytes = len(encoded.data)
        if nbytes > _LARGEST:
            what = "the values of a Variant column"
            raise LimitExceeded(what, expected="at most 2 GiB", found=nbytes, where=source.name)
        nulls = source.type.id == pa.lib.Type_NA
        validity = source.validity
        if rows and (nulls or source.type.id == pa.lib.Type_DENSE_UNION):
            validity = bitmap.packed(present)
        indices, metadata = xp.zeros(rows, np.int32), metadata_values([blob], rows, device)
        buffers = encoded.offsets, encoded.data
        return variant_of(
            name or source.name, validity, indices, metadata, *buffers, nulls=rows if nulls else -1
        )


class _Known(NamedTuple):
    """The names of all fields and keys of maps, their ids, and the keys of each map by its node."""

    names: encoding.Names
    ids: dict[str, int]
    keys: dict[int, pa.DictionaryArray]


def _collect(column: Column, names: set[str], keys: dict[int, pa.DictionaryArray]) -> None:
    """Collect the names of the fields of all structs in a column, and the keys of all maps."""
    children = column.children
    if column.type.id == pa.lib.Type_MAP:
        children = children[0].children
        keys[column._index] = encoded = children[0].to_arrow().dictionary_encode()
        try:
            names.update(encoded.dictionary.to_pylist())
        except UnicodeDecodeError as error:
            raise InvalidBody("a key of a map is not UTF-8", where=column.name) from error
    elif column.type.id == pa.lib.Type_STRUCT:
        of_fields = [child.name for child in children]
        if len(set(of_fields)) != len(of_fields):
            raise UsageError("a struct has two fields of one name", found=of_fields, where=column.name)
        names.update(of_fields)
    for child in children:
        _collect(child, names, keys)


def _bytes(column: Column, known: _Known, rows: int | None = None) -> encoding.GroupBytes:
    """Return what makes Variant values of a column; its nulls are Variant nulls.

    A child of a struct may have more rows than the struct: `rows` says how many count.
    """
    device, type_ = column.device, column.type
    rows = len(column) if rows is None else rows
    flags = flags_of(device, rows, column)
    values: encoding.AnyBytes
    if type_.id == pa.lib.Type_DENSE_UNION:
        children = zip(column.children, _members(column, rows), strict=True)
        values = encoding.UnionBytes(
            device, rows, [(_bytes(child, known), *slots) for child, slots in children]
        )
    elif type_.id == pa.lib.Type_STRUCT:
        check_children(column, column.children, column.name)
        ordered = sorted(column.children, key=lambda child: child.name.encode())
        fields = {child.name: _bytes(child, known, rows) for child in ordered}
        values = encoding.ObjectBytes(device, rows, flags, fields, known.names)
    elif type_.id == pa.lib.Type_FIXED_SIZE_LIST:
        [item] = column.children
        starts = device.xp.arange(rows, dtype=np.int64) * np.int64(type_.list_size)
        stops = starts + np.int64(type_.list_size)
        values = encoding.ArrayBytes(device, rows, flags, starts, stops, _bytes(item, known))
    elif type_.id in _LISTS or type_.id == pa.lib.Type_MAP:
        starts, stops = (each[:rows] for each in list_bounds(column))
        [item] = column.children
        if type_.id == pa.lib.Type_MAP:
            encoded, count = known.keys[column._index], len(item)
            numbers = np.array([known.ids[key] for key in encoded.dictionary.to_pylist()], np.int32)
            places = encoded.indices.to_numpy(zero_copy_only=False)
            ids = numbers[places][:count] if len(numbers) else np.zeros(0, np.int32)
            inner = _bytes(item.children[1], known, count)
            values = encoding.MapBytes(device, rows, flags, starts, stops, ids, inner)
        else:
            values = encoding.ArrayBytes(device, rows, flags, starts, stops, _bytes(item, known))
    else:
        values = encoding.leaf_of(column, flags)
    return encoding.GroupBytes(device, rows, values, None, None, required=True)


def _members(column: Column, rows: int) -> Iterator[tuple[Any, Any]]:
    """Yield which rows of a union have each child, and their slots in it."""
    ids, slots = column._array(np.int8, Kind.TYPE_IDS)[:rows], column.offsets[:rows]
    for number in range(len(column.children)):
        chosen = np.flatnonzero(ids == number)
        yield chosen, slots[chosen].astype(np.int64)


def _present(column: Column) -> Any:
    """Return which rows have a value; a union has no nulls but those of its children."""
    if column.type.id != pa.lib.Type_DENSE_UNION:
        return flags_of(column.device, len(column), column)
    present = np.zeros(len(column), np.bool_)
    for child, (chosen, slots) in zip(column.children, _members(column, len(column)), strict=True):
        present[chosen] = _present(child)[slots]
    return present


def _is_direct(field: pa.Field) -> bool:
    """Return whether a type is encoded as it lies, and not after pyarrow has rewritten it, on the host."""
    type_ = field.type
    if is_variant(field):
        raise Unsupported("a Variant inside of another column", found=field.name)
    if isinstance(type_, pa.BaseExtensionType) and type_ != pa.uuid():
        return False
    if type_.id in _REWRITTEN or (pa.types.is_decimal(type_) and type_.scale < 0):
        return False
    is_map = type_.id == pa.lib.Type_MAP
    inside = (type_.field(index) for index in range(type_.num_fields))
    are_direct = all(map(_is_direct, (type_.key_field, type_.item_field) if is_map else inside))
    return are_direct and not is_map


def _plain(array: pa.Array) -> pa.Array:
    """Return an array whose type is encoded as it lies."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    type_ = array.type
    if type_ == pa.uuid():
        return array
    if isinstance(type_, pa.BaseExtensionType):
        return _plain(array.storage)
    if pa.types.is_dictionary(type_):
        return _plain(array.dictionary.take(array.indices))
    if pa.types.is_run_end_encoded(type_):
        import pyarrow.compute as pc  # takes long to import

        return _plain(pc.run_end_decode(array))
    if type_.id in _UNIONS:
        return _of_union(array)
    if pa.types.is_fixed_size_binary(type_):
        return array.cast(pa.binary())
    if pa.types.is_decimal(type_) and (type_.id == pa.lib.Type_DECIMAL256 or type_.scale < 0):
        try:
            return array.cast(pa.decimal128(_MOST_DIGITS, max(type_.scale, 0)))
        except pa.ArrowInvalid as error:
            raise Unsupported(
                "Variant has no such decimals",
                expected=f"at most {_MOST_DIGITS} digits",
                found=f"{type_}: {error}",
            ) from error
    if type_.id in _LIST_VIEWS:
        # Their elements lie in any order.
        ends = np.cumsum(np.append(0, array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)))
        mask = np.append(array.is_null().to_numpy(zero_copy_only=False), False)
        offsets = pa.array(ends.astype(np.int64), mask=mask)
        return pa.LargeListArray.from_arrays(offsets, _plain(array.flatten()))
    if pa.types.is_fixed_size_list(type_):
        return _plain(array.cast(pa.list_(type_.value_field)))
    if pa.types.is_map(type_):
        keys, items = (_plain(array.values.field(index)) for index in range(2))
        if keys.null_count:
            raise InvalidBody("a key of a map is null", found=str(type_))
        pairs = pa.StructArray.from_arrays([keys, items], ["key", "value"])
        kind = pa.map_(keys.type, items.type) if is_text(keys.type) else pa.list_(pairs.type)
        return _with_inside(array, kind, pairs)
    if type_.id in _LISTS:
        inside = _plain(array.values)
        of_lists = pa.large_list if type_.id == pa.lib.Type_LARGE_LIST else pa.list_
        return _with_inside(array, of_lists(inside.type), inside)
    if pa.types.is_struct(type_) and type_.num_fields:
        children = [_plain(array.field(index)) for index in range(type_.num_fields)]
        return pa.StructArray.from_arrays(children, [each.name for each in type_], mask=array.is_null())
    return array


def _of_union(array: pa.UnionArray) -> pa.UnionArray:
    """Return a dense union with ids from 0 on, each of whose children has the slots that it needs and no other."""
    type_ = array.type
    codes = array.type_codes.to_numpy()
    slots = array.offsets.to_numpy() if type_.id == pa.lib.Type_DENSE_UNION else np.arange(len(array))
    ids, offsets, children = np.zeros(len(array), np.int8), np.zeros(len(array), np.int32), []
    for number, code in enumerate(type_.type_codes):
        chosen = np.flatnonzero(codes == code)
        ids[chosen], offsets[chosen] = number, np.arange(len(chosen))
        children.append(_plain(array.field(number).take(pa.array(slots[chosen]))))
    return pa.UnionArray.from_dense(pa.array(ids), pa.array(offsets), children)


def _with_inside(array: pa.Array, type_: pa.DataType, inside: pa.Array) -> pa.Array:
    """Return lists or maps with others inside: by their own buffers, for null lists may have elements."""
    buffers, nulls = array.buffers()[:2], array.null_count
    try:
        return pa.Array.from_buffers(type_, len(array), buffers, nulls, array.offset, [inside])
    except pa.ArrowInvalid as error:
        raise InvalidBody("lists are not within their elements", found=str(error)) from error
