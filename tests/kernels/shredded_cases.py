"""Arguments for the kernels of shredded Variants: those of a column with rows of every form, right and wrong."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.errors import BowstringError
from bowstring.kernels import host
from bowstring.kernels.signature import Kernel, match
from bowstring.kernels.variant import metadata, shredded, shredded_objects
from bowstring.kernels.variant import shred as shred_kernels
from bowstring.variant.shredded import encode, levels, shred
from bowstring.variant.shredded.arrow import from_arrow
from bowstring.variant.shredded.unshred import unshredded

Case = tuple[int, tuple[Any, ...]]
MARK = {b"ARROW:extension:name": b"arrow.parquet.variant", b"ARROW:extension:metadata": b""}
# The names are in no order, and one is there twice.
METADATA = bytes([0x01, 4, 0, 1, 2, 3, 4]) + b"bcab"
ORDERED = bytes([0x11, 2, 0, 1, 2]) + b"ab"
RESIDUAL = bytes([2, 2, 1, 3, 0, 2, 4, 12, 7, 12, 8])
_PLAIN = pa.struct({"metadata": pa.binary(), "value": pa.binary()})
MISSING = {"value": None, "typed_value": None}


def _rows() -> list[Any]:
    def row(value: Any, fields: Any, metadata: bytes = METADATA) -> Any:
        made = fields and {name: fields.get(name, MISSING) for name in ("a", "b", "d", "t")}
        return {"metadata": metadata, "value": value, "typed_value": made}

    texts = [
        {"value": None, "typed_value": "x" * 70},
        {"value": bytes([12, 1]), "typed_value": None},
        MISSING,
    ]
    return [
        row(None, {"a": {"value": None, "typed_value": texts}, "b": {"value": None, "typed_value": b"y"}}),
        row(RESIDUAL[:4] + bytes([0, 2, 2, 12, 7]), {"a": {"value": bytes([0]), "typed_value": None}}),
        row(bytes([2, 1, 1, 0, 2, 12, 7]), {"a": {"value": None, "typed_value": texts[1:]}}),
        row(bytes([2, 1, 1, 0, 2, 12, 7]), {"b": {"value": bytes([0]), "typed_value": b"y"}}),
        row(bytes([12, 7]), None),
        row(bytes([12, 7]), {"b": {"value": bytes([12, 5]), "typed_value": None}}),
        row(None, {"d": {"value": None, "typed_value": 12}}),
        row(None, {"b": {"value": None, "typed_value": b""}}, ORDERED),
        row(None, None, b"\x07"),
        None,
    ]


def _column(binary: pa.DataType, text: pa.DataType) -> Batch:
    def group(typed: pa.DataType) -> pa.DataType:
        return pa.struct([pa.field("value", binary), pa.field("typed_value", typed)])

    fields = {
        "a": group(pa.list_(pa.field("element", group(text)))),
        "b": group(binary),
        "d": group(pa.decimal128(1, 0)),
        "t": group(pa.int32()),
    }
    type_ = pa.struct({"metadata": binary, "value": binary, "typed_value": pa.struct(fields)})
    rows = _rows()
    rows[6]["typed_value"]["d"]["typed_value"] = None
    array = pa.array(rows, type_)
    schema = pa.schema([pa.field("v", type_, metadata=MARK)])
    return Batch.from_arrow(pa.RecordBatch.from_arrays([array], schema=schema))


@functools.cache
def _recorded() -> dict[Kernel, list[Case]]:
    """Return what the kernels are launched with, as it is before they run."""
    found: dict[Kernel, list[Case]] = {}

    def launch(kernel: Kernel, items: int, *arguments: Any) -> None:
        copies = tuple(each.copy() if isinstance(each, np.ndarray) else each for each in arguments)
        found.setdefault(kernel, []).append((items, copies))
        signature, values = match(kernel, arguments)
        host.interpret(signature, items, values)

    def launch_shared(kernel: Kernel, rows: int, *arguments: Any) -> None:
        for log in (0, 2):
            launch(kernel, rows << log, log, *arguments)

    with contextlib.ExitStack() as stack:
        # What no kernel writes is the same in every process, too.
        stack.enter_context(mock.patch.object(np, "empty", np.ones))
        for module in (encode, levels, shred):
            stack.enter_context(mock.patch.object(module, "launch", launch))
            if hasattr(module, "launch_shared"):
                stack.enter_context(mock.patch.object(module, "launch_shared", launch_shared))
        for types in ((pa.binary(), pa.string()), (pa.large_binary(), pa.large_string())):
            try:
                unshredded(_column(*types)[0])
            except BowstringError:
                raise AssertionError("the column is read") from None
        maps = pa.map_(pa.string(), pa.int8())
        from_arrow(pa.array([[("b", 1), ("a", 2)], None, []], maps))
        with contextlib.suppress(BowstringError):
            from_arrow(pa.array([[("b", 1), ("b", 2)], [("a", None)]], maps))
        _shred_all()
    wide = np.frombuffer(np.array([5, 0, 10, 0, -10, -1], np.int64).tobytes(), np.uint8)
    decimals = wide, 16, 4, np.array([9, 0], np.uint64), np.ones(3, np.uint8), np.zeros(3, np.int64)
    narrow = wide, 8, 8, np.array([9, 0], np.uint64), np.ones(6, np.uint8), np.zeros(6, np.int64)
    sizes, places = np.array([10, 0, 6], np.int64), np.array([3, -1, 20], np.int64)
    found[shredded.write_fixed].append((3, (wide, 16, 8, 36, 2, sizes, places, np.zeros(40, np.uint8))))
    found[shredded.write_fixed].append((3, (wide, 16, 1, -1, -1, sizes, places, np.zeros(40, np.uint8))))
    shapes = found[shred_kernels.name_shapes]
    # Types of a schema count the digits of every decimal.
    shapes += [(items, (*given[:3], 1, given[4])) for items, given in list(shapes)]
    found.setdefault(shredded.measure_decimals, []).extend([(3, decimals), (6, narrow)])
    return found


def _shred_all() -> None:
    """Shred objects with names in no order, with names twice, with types that are not known, and others."""
    numbers = bytes([2, 3, 0, 1, 2, 0, 2, 4, 20, 12, 7, 12, 8, 32, 2]) + bytes([57, 48, 0, 0])
    tenth = bytes([40, 1]) + bytes(15) + b"\x07"
    nested = bytes([2, 1, 3, 0, 18]) + tenth
    listed = bytes([3, 2, 0, 2, 3, 12, 7, 0])
    rows = [RESIDUAL, numbers, nested, listed, b"\x00", b"\x04", b"\x09xy", bytes([2, 0, 0]), RESIDUAL[:-1]]
    twice = [bytes([2, 2, 1, 1, 0, 2, 4, 12, 7, 12, 8]), bytes([2, 1, 1, 0, 1, 252])]
    schema = pa.struct({"a": pa.int32(), "d": pa.string()})
    for made in (rows[:-1], rows[-1:], twice[:1], twice[1:]):
        values = [{"metadata": METADATA, "value": each} for each in made]
        array = pa.array([*values, {"metadata": ORDERED, "value": bytes([2, 1, 1, 0, 2, 12, 7])}], _PLAIN)
        for wanted in ("infer", schema, pa.list_(pa.int8())):
            with contextlib.suppress(BowstringError):
                shred.shred(array, wanted, plain=True)


def _of(kernel: Kernel) -> Callable[[np.random.Generator], Iterator[Case]]:
    def make(_rng: np.random.Generator) -> Iterator[Case]:
        for items, arguments in _recorded()[kernel]:
            yield items, tuple(each.copy() if isinstance(each, np.ndarray) else each for each in arguments)

    return make


_TABLES: list[Any] = [
    shred_kernels.SIGNATURES,
    shredded.SIGNATURES,
    (metadata.count_names, metadata.rank_names, metadata.find_fields),
    shredded_objects.SIGNATURES,
]
CASES: dict[Kernel, Callable[[np.random.Generator], Iterator[Case]]] = {
    kernel: _of(kernel) for table in _TABLES for kernel in table
}
