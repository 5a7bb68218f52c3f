"""A reader of Arrow's integration JSON: the values that a golden file holds, taken from no IPC reader."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.conformance.integration_schema import Json, read_field, read_schema
from tests.conformance.intervals import retagged

__all__ = ["read_document", "read_json"]

Buffers = list[pa.Buffer | None]

_DAY_TIME = np.dtype([("days", "<i4"), ("milliseconds", "<i4")])
_MONTH_DAY_NANO = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
_OUT_OF_LINE = np.dtype([("SIZE", "<i4"), ("PREFIX", "S4"), ("BUFFER_INDEX", "<i4"), ("OFFSET", "<i4")])
_LONGEST_INLINE = 12
_OFFSET_64 = frozenset(("largebinary", "largeutf8", "largelist", "largelistview"))


def read_json(path: Path) -> pa.Table:
    """Return what a ``.json.gz`` says, one chunk per batch."""
    return read_document(json.loads(gzip.decompress(path.read_bytes())))


def read_document(document: Json) -> pa.Table:
    """Return what a document says, one chunk per batch."""
    return pa.Table.from_batches(_Values(document).batches(), read_schema(document))


class _Values:
    """Makes arrays of one document; its dictionaries are made when a field asks for them."""

    def __init__(self, document: Json) -> None:
        self._document = document
        self._dictionaries = {each["id"]: each["data"] for each in document.get("dictionaries", ())}

    def batches(self) -> list[pa.RecordBatch]:
        schema, twin = read_schema(self._document), read_schema(self._document, twin=True)
        fields = self._document["schema"]["fields"]
        return [retagged(self._batch(batch, fields, twin), schema) for batch in self._document["batches"]]

    def _batch(self, batch: Json, fields: list[Json], twin: pa.Schema) -> pa.RecordBatch:
        columns = [self._array(*each) for each in zip(fields, batch["columns"], strict=True)]
        if columns:
            return pa.RecordBatch.from_arrays(columns, schema=twin)
        empty = pa.StructArray.from_buffers(pa.struct([]), batch["count"], [None], children=[])
        return pa.RecordBatch.from_struct_array(empty)

    def _array(self, field: Json, data: Json) -> pa.Array:
        encoding = field.get("dictionary")
        if not encoding:
            return self._plain(field, data)
        type_ = read_field(field, twin=True).type
        values = {**field, "dictionary": None}
        dictionary = self._array(values, self._dictionaries[encoding["id"]]["columns"][0])
        buffers = [_validity(data), _integers(type_.index_type, data)]
        return pa.DictionaryArray.from_buffers(type_, data["count"], buffers, dictionary)

    def _plain(self, field: Json, data: Json) -> pa.Array:
        type_ = read_field(field, twin=True).type
        children = [
            self._array(*each)
            for each in zip(field.get("children", ()), data.get("children", ()), strict=True)
        ]
        if pa.types.is_null(type_):
            return pa.nulls(data["count"])
        if pa.types.is_run_end_encoded(type_):
            return pa.Array.from_buffers(type_, data["count"], [None], children=children)
        buffers = _BUFFERS[field["type"]["name"]](type_, field, data)
        return pa.Array.from_buffers(type_, data["count"], buffers, children=children or None)


def _buffer(values: Any) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(values).tobytes())


def _bits(values: list[int]) -> pa.Buffer:
    return _buffer(np.packbits(np.array(values, np.uint8), bitorder="little"))


def _validity(data: Json) -> pa.Buffer:
    return _bits(data["VALIDITY"])


def _integers(type_: pa.DataType, data: Json) -> pa.Buffer:
    # 64-bit ones are text, since numbers of JSON have no more than 53 bits.
    return _buffer(np.array([int(value) for value in data["DATA"]], type_.to_pandas_dtype()))


def _numbers(type_: pa.DataType, _field: Json, data: Json) -> Buffers:
    dtype = f"<i{type_.bit_width // 8}"
    if pa.types.is_floating(type_) or pa.types.is_integer(type_):
        dtype = type_.to_pandas_dtype()
    values = data["DATA"]
    return [_validity(data), _buffer(np.array([int(v) if isinstance(v, str) else v for v in values], dtype))]


def _booleans(_type: pa.DataType, _field: Json, data: Json) -> Buffers:
    return [_validity(data), _bits(data["DATA"])]


def _decimals(type_: pa.DataType, _field: Json, data: Json) -> Buffers:
    width = type_.bit_width // 8
    values = b"".join(int(value).to_bytes(width, "little", signed=True) for value in data["DATA"])
    return [_validity(data), pa.py_buffer(values)]


def _intervals(type_: pa.DataType, field: Json, data: Json) -> Buffers:
    dtypes = {"YEAR_MONTH": np.dtype("<i4"), "DAY_TIME": _DAY_TIME, "MONTH_DAY_NANO": _MONTH_DAY_NANO}
    dtype = dtypes[field["type"]["unit"]]
    values = data["DATA"]
    if dtype.names:
        values = [tuple(int(value[name]) for name in dtype.names) for value in values]
    return [_validity(data), _buffer(np.array(values, dtype))]


def _bytes(field: Json, values: list[str]) -> list[bytes]:
    is_text = "utf8" in field["type"]["name"]
    return [value.encode() if is_text else bytes.fromhex(value) for value in values]


def _offsets(field: Json, values: list[Any]) -> pa.Buffer:
    dtype = "<i8" if field["type"]["name"] in _OFFSET_64 else "<i4"
    return _buffer(np.array([int(value) for value in values], dtype))


def _fixed_binary(_type: pa.DataType, field: Json, data: Json) -> Buffers:
    return [_validity(data), pa.py_buffer(b"".join(_bytes(field, data["DATA"])))]


def _binary(_type: pa.DataType, field: Json, data: Json) -> Buffers:
    values = pa.py_buffer(b"".join(_bytes(field, data["DATA"])))
    return [_validity(data), _offsets(field, data["OFFSET"]), values]


def _views(_type: pa.DataType, field: Json, data: Json) -> Buffers:
    views = b"".join(_view(field, view) for view in data["VIEWS"])
    variadic = [pa.py_buffer(bytes.fromhex(each)) for each in data["VARIADIC_DATA_BUFFERS"]]
    return [_validity(data), pa.py_buffer(views), *variadic]


def _view(field: Json, view: Json) -> bytes:
    if view["SIZE"] <= _LONGEST_INLINE:
        (inlined,) = _bytes(field, [view["INLINED"]])
        return view["SIZE"].to_bytes(4, "little") + inlined.ljust(_LONGEST_INLINE, b"\0")
    place = (view["SIZE"], bytes.fromhex(view["PREFIX_HEX"]), view["BUFFER_INDEX"], view["OFFSET"])
    return np.array(place, _OUT_OF_LINE).tobytes()


def _lists(_type: pa.DataType, field: Json, data: Json) -> Buffers:
    return [_validity(data), _offsets(field, data["OFFSET"])]


def _list_views(_type: pa.DataType, field: Json, data: Json) -> Buffers:
    return [_validity(data), _offsets(field, data["OFFSET"]), _offsets(field, data["SIZE"])]


def _validity_alone(_type: pa.DataType, _field: Json, data: Json) -> Buffers:
    return [_validity(data)]


def _unions(type_: pa.DataType, field: Json, data: Json) -> Buffers:
    # Those from before 1.0 have a VALIDITY too, without nulls: V4 had a place for it.
    assert all(data.get("VALIDITY", ()))
    type_ids = _buffer(np.array(data["TYPE_ID"], np.int8))
    return [None, type_ids] if type_.mode == "sparse" else [None, type_ids, _offsets(field, data["OFFSET"])]


_BUFFERS: dict[str, Callable[[pa.DataType, Json, Json], Buffers]] = {
    **dict.fromkeys(("int", "floatingpoint", "date", "time", "timestamp", "duration"), _numbers),
    "bool": _booleans,
    "decimal": _decimals,
    "interval": _intervals,
    "fixedsizebinary": _fixed_binary,
    **dict.fromkeys(("binary", "utf8", "largebinary", "largeutf8"), _binary),
    **dict.fromkeys(("binaryview", "utf8view"), _views),
    **dict.fromkeys(("list", "largelist", "map"), _lists),
    **dict.fromkeys(("listview", "largelistview"), _list_views),
    **dict.fromkeys(("struct", "fixedsizelist"), _validity_alone),
    "union": _unions,
}
