"""Arrow columns of any type as Variant columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

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
from bowstring.variant.shredded.encode import (
    ArrayBytes,
    Bytes,
    GroupBytes,
    MapBytes,
    Names,
    ObjectBytes,
    UnionBytes,
    leaf_of,
)
from bowstring.variant.shredded.layout import check_children, flags_of, is_text, list_bounds
from bowstring.variant.shredded.unshred import encode, raise_rule

if TYPE_CHECKING:
    from bowstring.columnar.batch import Column

_LARGEST: Final = (1 << 31) - 1
_LISTS: Final = (pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST)
_UNIONS: Final = (pa.lib.Type_SPARSE_UNION, pa.lib.Type_DENSE_UNION)
_LIST_VIEWS: Final = (pa.lib.Type_LIST_VIEW, pa.lib.Type_LARGE_LIST_VIEW)
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
    found = one_column(column, "variant")
    if is_variant(found.field):
        return found
    device = found.device
    direct = _is_direct(found.field)
    if not device.is_host and (not direct or _has_maps(found)):
        raise NotOnDevice(
            "variant.from_arrow reads this type on the host",
            found=f"{found.type} on {device.name}",
            where=found.name,
            hint='Use column.as_batch().to_device("cpu")[0] first.',
        )
    if not direct:
        plain = _plain(found.to_arrow())
        found = Batch.from_arrow(pa.table({found.name: plain}).combine_chunks())[0]
    with device.use():
        keys = _Keys()
        names = sorted({*_names(found), *keys.names_of(found)}, key=str.encode)
        keys.ids = {each: number for number, each in enumerate(names)}
        blob = metadata_bytes(tuple(names))
        data = device.xp.asarray(np.frombuffer(blob, np.uint8))
        slots = device.xp.zeros(1, np.int64), device.xp.full(1, len(blob), np.int64), data
        marks = device.xp.empty(1, np.uint8)
        launch(inspect_metadata, 1, *slots, 0, marks)
        known = Names(device, MetadataDictionary(device.xp.zeros(0, np.int32), *slots, marks))
        present = flags_of(device, len(found), found)
        if found.type.id != pa.lib.Type_NA:
            if found.type.id == pa.lib.Type_DENSE_UNION:
                present = _present(found)
            made = _bytes(found, known, keys)
            groups = device.xp.zeros(len(found), np.int32)
            encoded = encode(device, made, groups, present, found.name, limits)
            raise_rule(encoded.sizes, found)
            offsets, data = encoded.offsets, encoded.data
        else:
            offsets, data = device.xp.zeros(len(found) + 1, np.int64), device.xp.empty(0, np.uint8)
        return _variant(found, name or found.name, blob, offsets, data, present)


class _Keys:
    """The keys of maps: their texts, and their ids once all names are known."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self._encoded: dict[int, pa.DictionaryArray] = {}

    def names_of(self, column: Column) -> Iterator[str]:
        """Yield the keys of all maps in a column."""
        if column.type.id == pa.lib.Type_MAP and is_text(column.type.key_type):
            keys = column.children[0].children[0]
            found = self._encoded[keys._index] = keys.to_arrow().dictionary_encode()
            try:
                yield from found.dictionary.to_pylist()
            except UnicodeDecodeError as error:
                raise InvalidBody("a key of a map is not UTF-8", where=column.name) from error
        for child in column.children:
            yield from self.names_of(child)

    def of(self, keys: Column) -> Any:
        found = self._encoded[keys._index]
        numbers = np.array([self.ids[each] for each in found.dictionary.to_pylist()], np.int32)
        places = found.indices.to_numpy(zero_copy_only=False)
        return numbers[places] if len(numbers) else np.zeros(0, np.int32)


def _has_maps(column: Column) -> bool:
    return column.type.id == pa.lib.Type_MAP or any(map(_has_maps, column.children))


def _names(column: Column) -> Iterator[str]:
    """Yield the names of the fields of all structs in a column."""
    if column.type.id == pa.lib.Type_STRUCT:
        names = [child.name for child in column.children]
        if len(set(names)) != len(names):
            raise UsageError("a struct has two fields of one name", found=names, where=column.name)
        yield from names
    if column.type.id == pa.lib.Type_MAP and not is_text(column.type.key_type):
        yield from ("key", "value")
    for child in column.children:
        yield from _names(child)


def _bytes(column: Column, known: Names, keys: _Keys, rows: int | None = None) -> Bytes:
    """Return what makes Variant values of a column; its nulls are Variant nulls.

    A child of a struct may have more rows than the struct: `rows` says how many count.
    """
    device, type_ = column.device, column.type
    rows = len(column) if rows is None else rows
    flags = flags_of(device, rows, column)
    made: Bytes
    if type_.id in _LISTS or type_.id == pa.lib.Type_FIXED_SIZE_LIST:
        [item] = column.children
        if type_.id == pa.lib.Type_FIXED_SIZE_LIST:
            starts = device.xp.arange(rows, dtype=np.int64) * np.int64(type_.list_size)
            stops = starts + np.int64(type_.list_size)
        else:
            starts, stops = (each[:rows] for each in list_bounds(column))
        made = ArrayBytes(device, rows, flags, starts, stops, _bytes(item, known, keys), len(item))
    elif type_.id == pa.lib.Type_MAP:
        made = _map(column, flags, known, keys)
    elif type_.id == pa.lib.Type_DENSE_UNION:
        children = zip(column.children, _members(column, rows), strict=True)
        made = UnionBytes(
            device, rows, [(_bytes(each, known, keys), *slots, len(each)) for each, slots in children]
        )
    elif type_.id == pa.lib.Type_STRUCT:
        made = _object(column, {child.name: child for child in column.children}, flags, known, keys)
    else:
        made = leaf_of(column, flags)
    return GroupBytes(device, rows, made, None, None, required=True)


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
    found = np.zeros(len(column), np.bool_)
    for child, (chosen, slots) in zip(column.children, _members(column, len(column)), strict=True):
        found[chosen] = _present(child)[slots]
    return found


def _object(
    column: Column, children: dict[str, Column], flags: Any, known: Names, keys: _Keys
) -> ObjectBytes:
    names = sorted(children, key=str.encode)
    check_children(column, children.values(), column.name)
    fields = [_bytes(children[name], known, keys, len(flags)) for name in names]
    return ObjectBytes(column.device, len(flags), flags, names, fields, known)


def _map(column: Column, flags: Any, known: Names, keys: _Keys) -> Bytes:
    [entries] = column.children
    key, item = entries.children
    device, rows, count = column.device, len(flags), len(entries)
    starts, stops = (each[:rows] for each in list_bounds(column))
    if is_text(column.type.key_type):
        ids = keys.of(key)[:count]
        return MapBytes(device, rows, flags, starts, stops, ids, _bytes(item, known, keys, count))
    pairs = _object(entries, {"key": key, "value": item}, flags_of(device, count), known, keys)
    inside = GroupBytes(device, count, pairs, None, None, required=True)
    return ArrayBytes(device, rows, flags, starts, stops, inside, count)


def _variant(column: Column, name: str, blob: bytes, offsets: Any, data: Any, present: Any) -> Column:
    """Return values as a Variant column whose rows share one metadata; `present` says which are no SQL NULLs."""
    device, rows = column.device, len(column)
    if len(data) > _LARGEST:
        raise LimitExceeded(
            "the values of a Variant column", expected="at most 2 GiB", found=len(data), where=column.name
        )
    nulls = column.type.id == pa.lib.Type_NA
    validity = column.validity
    if rows and (nulls or column.type.id == pa.lib.Type_DENSE_UNION):
        validity = bitmap.packed(present)
    indices, metadata = device.xp.zeros(rows, np.int32), metadata_values([blob], rows, device)
    return variant_of(name, validity, indices, metadata, offsets, data, nulls=rows if nulls else -1)


def _is_direct(field: pa.Field) -> bool:
    """Return whether a type is encoded as it lies, and not after pyarrow has rewritten it."""
    type_ = field.type
    if is_variant(field):
        raise Unsupported("a Variant inside of another column", found=field.name)
    if isinstance(type_, pa.BaseExtensionType) and type_ != pa.uuid():
        return False
    rewritten = (*_UNIONS, *_LIST_VIEWS, pa.lib.Type_DICTIONARY, pa.lib.Type_RUN_END_ENCODED)
    if type_.id in rewritten or type_.id == pa.lib.Type_DECIMAL256:
        return False
    if pa.types.is_decimal(type_) and type_.scale < 0:
        return False
    if type_.id == pa.lib.Type_FIXED_SIZE_BINARY:
        return False
    if type_.id == pa.lib.Type_MAP:
        return _is_direct(type_.key_field) and _is_direct(type_.item_field)
    return all(_is_direct(type_.field(index)) for index in range(type_.num_fields))


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
    if pa.types.is_decimal(type_):
        if type_.id != pa.lib.Type_DECIMAL256 and type_.scale >= 0:
            return array
        try:
            return array.cast(pa.decimal128(_MOST_DIGITS, max(type_.scale, 0)))
        except pa.ArrowInvalid as error:
            raise Unsupported(
                "Variant has no such decimals",
                expected=f"at most {_MOST_DIGITS} digits",
                found=f"{type_}: {error}",
            ) from error
    if type_.id in _LIST_VIEWS:
        return _from_views(array)
    if pa.types.is_map(type_):
        offsets = _absolute(array)
        keys, items = _plain(array.keys), _plain(array.items)
        return pa.MapArray.from_arrays(offsets, keys, items)
    if type_.id in _LISTS:
        make = pa.LargeListArray if type_.id == pa.lib.Type_LARGE_LIST else pa.ListArray
        return make.from_arrays(_absolute(array), _plain(array.values))
    if pa.types.is_fixed_size_list(type_):
        return _plain(array.cast(pa.list_(type_.value_field)))
    if pa.types.is_struct(type_):
        children = [_plain(array.field(index)) for index in range(type_.num_fields)]
        names = [each.name for each in type_]
        if not children:
            return array
        return pa.StructArray.from_arrays(children, names, mask=array.is_null())
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


def _from_views(array: pa.Array) -> pa.Array:
    """Return views of lists as lists: their elements lie in any order."""
    lengths = array.value_lengths()
    mask = np.append(array.is_null().to_numpy(zero_copy_only=False), False)
    ends = np.cumsum(np.append(0, lengths.fill_null(0).to_numpy(zero_copy_only=False)))
    offsets = pa.array(ends.astype(np.int64), mask=mask)
    return pa.LargeListArray.from_arrays(offsets, _plain(array.flatten()))


def _absolute(array: pa.Array) -> pa.Array:
    """Return the offsets of lists, null where a list is."""
    offsets = array.offsets
    if not array.null_count:
        return offsets
    mask = np.append(array.is_null().to_numpy(zero_copy_only=False), False)
    return pa.array(offsets.to_numpy(), offsets.type, mask=mask)
