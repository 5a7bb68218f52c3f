"""Import of the structs of Arrow's C data interface: they are read, and the memory stays where it is."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic

import numpy as np
import pyarrow as pa

from bowstring.columnar.interchange import capsule as c_structs
from bowstring.columnar.interchange.capsule import STRUCT_BYTES, STRUCT_WORDS
from bowstring.columnar.interchange.cudf import with_names_of_cudf
from bowstring.columnar.layout import Layout
from bowstring.columnar.nodes import Kind, Node
from bowstring.columnar.parts import AnyBatch, Dictionary, Parts, make_batch
from bowstring.columnar.slice import slice_parts
from bowstring.columnar.spans import Spans, Table
from bowstring.errors import DeviceError, UsageError
from bowstring.kernels.host import ALL_MEMORY, bound
from bowstring.kernels.ipc import batch as kernel
from bowstring.kernels.library import address_of
from bowstring.memory import CPU_DEVICE_TYPE, Device, cpu, device_by_id, foreign_region
from bowstring.memory.dlpack import address_in

_STRUCT: Final = struct.Struct(f"={STRUCT_WORDS}q")
_DICTIONARY: Final = 7  # which word of the struct
_ROOM, _STATE, _DONE, _GROW = map(int, (kernel.ROOM, kernel.STATE, kernel.DONE, kernel.GROW))
_STRUCT_AT: Final = int(kernel.STRUCT_AT)


class _Walk:
    """One pass over the structs of a batch that notes nodes and buffers as a Layout orders them."""

    def __init__(self, layout: Layout, device: Device, owner: object) -> None:
        self.layout = layout
        self.device = device
        self.owner = owner  # keeps the buffers alive, which lie on the device; structs are on the host always
        # Structs of the host are pyarrow's own.
        self.checks = not device.is_host
        self.words: list[tuple[int, ...]] = []
        self.pointers: list[int] = []
        self.variadic_counts: list[int] = []
        self.variadic_sizes: list[int] = []
        self.dictionaries: list[tuple[int, int]] = []
        self.num_rows = self.start = 0

    def batch(self, address: int) -> None:
        words = _STRUCT.unpack(ctypes.string_at(address, STRUCT_BYTES))
        self.num_rows, nulls, self.start, _, _, _, children = words[:7]
        if nulls > 0:
            raise UsageError("rows that are null altogether are no record batch", found=f"{nulls} of them")
        columns = self.layout.columns
        if self.checks:
            self._check(words, "the batch", len(columns))
        for column, child in zip(columns, _words(children, len(columns)) if columns else (), strict=True):
            self.visit(column, child)

    def visit(self, index: int, address: int) -> None:
        """Note the struct at `address`, which is the node `index`, and those below it."""
        words = _STRUCT.unpack(ctypes.string_at(address, STRUCT_BYTES))
        _, _, _, buffers, children, pointers_at, children_at, dictionary, _, _ = words
        node = self.layout.nodes[index]
        if self.checks:
            self._check(words, ".".join(node.path), len(node.children), node)
        self.words.append(words)
        if buffers:
            pointers = _words(pointers_at, buffers)
            self.pointers += pointers[:-1] if node.variadic else pointers
            if node.variadic:
                count = buffers - len(node.buffer_kinds) - 1
                self.variadic_counts.append(count)
                # On the host, whatever the device: so Arrow C++ and nanoarrow have it, and so do we.
                self.variadic_sizes += _words(pointers[-1], count) if count else ()
        if children:
            for child, child_address in zip(node.children, _words(children_at, children), strict=True):
                self.visit(child, child_address)
        if node.dictionary_id is not None:
            self.dictionaries.append((node.dictionary_id, dictionary))

    def _check(self, words: tuple[int, ...], where: str, num_children: int, node: Node | None = None) -> None:
        """Refuse a struct of another library that cannot be what its schema says."""
        length, nulls, start, buffers, children, pointers_at, children_at, dictionary, release, _ = words
        wrong = {
            "released": not release,
            "length or offset": length < 0 or start < 0 or length + start > self.layout.longest,
            "null count": not -1 <= nulls <= length,
            "children": children != num_children or (children > 0 and not children_at),
        }
        if node is not None:
            least = len(node.buffer_kinds) + node.variadic
            wrong["buffers"] = buffers < least or (buffers > least and not node.variadic)
            wrong["pointers to buffers"] = buffers > 0 and not pointers_at
            wrong["dictionary"] = bool(dictionary) != (node.dictionary_id is not None)
        broken = [what for what, holds in wrong.items() if holds]
        if broken:
            raise UsageError(
                "a struct of a device is not what its schema says",
                found=f"{', '.join(broken)}: {words[:5]}",
                where=where,
            )

    def _refuse(self, nodes: Table, what: str) -> None:
        if len(nodes):
            raise UsageError(what, where=self.layout.name_of(int(nodes[0])))

    def sizes(self, table: Table) -> Table:
        """Bytes of each buffer, from its start, which may be before slot 0, to its last slot."""
        layout = self.layout
        slots = table[:, 0] + table[:, 2]
        fixed = layout.minimum_lengths(slots)
        rows = layout.fixed_buffers(self.variadic_counts)
        counted = slots.tolist()
        wanted = [each for each in layout.offsets if each[3] < 0 and table[each[0], 0]]
        pointers = np.array(self.pointers, np.int64)
        if self.checks:
            columns, children = layout.column_nodes, layout.bounded_children
            short = table[columns, 0] < self.start + self.num_rows
            self._refuse(columns[short], "a column of a device is shorter than its batch")
            # A product of counts below Layout.longest may still overflow.
            needed = slots[layout.bounding_parents].astype(np.float64) * layout.bounding_factors
            short = table[children, 0] < needed
            self._refuse(children[short], "a child of a device is shorter than its parent")
            # What must be there, before the device is asked to read it: it would not live through that.
            absent = (pointers[rows] == 0) & (fixed > 0) & (layout.buffer_kinds != Kind.VALIDITY)
            self._refuse(layout.buffer_nodes[absent], "a struct of a device lacks a buffer")
        last = [self.pointers[int(rows[at])] + counted[node] * width for node, at, width, _ in wanted]
        if last:  # of a device one read
            begin, widths = min(last), [each.width for each in wanted]
            nbytes = max(map(sum, zip(last, widths, strict=True))) - begin
            region = foreign_region(begin, nbytes, self.owner, self.device)
            whole = Spans(np.array([(0, 0, nbytes)], np.int64), [region])
            at = [address - begin for address in last]
            ends = whole.fetch(self.device, [0] * len(last), at, widths)
            fixed[[each.buffer + 1 for each in wanted]] = ends
        if (fixed < 0).any():
            raise UsageError("offsets are negative", found=int(fixed.min()))
        sizes = np.empty(len(self.pointers), np.int64)
        sizes[rows] = fixed
        if self.variadic_sizes:
            variadic = np.ones(len(sizes), np.bool_)
            variadic[rows] = False
            sizes[variadic] = self.variadic_sizes
        result: Table = sizes * (pointers != 0)
        return result


def _words(address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"={count}q", ctypes.string_at(address, 8 * count))


class Importer(Generic[AnyBatch]):
    """Makes batches of Arrow's C structs; equal dictionaries in a row become one object.

    `batch_type` is their class: this module lies below it.
    """

    def __init__(self, batch_type: type[AnyBatch]) -> None:
        self.batch_type = batch_type
        self._known: dict[int, tuple[object, Dictionary]] = {}

    def batch(self, source: pa.RecordBatch) -> AnyBatch:
        layout = Layout.of(source.schema)
        try:
            source.validate()  # only pyarrow knows the sizes of its buffers: structs do not have them
        except pa.ArrowInvalid as error:
            raise UsageError("the data are not valid Arrow data", found=str(error)) from error
        capsule = source.__arrow_c_array__()[1]
        address = address_in(capsule, b"arrow_array")
        batch = self._by_plan(layout, address, source)
        if batch is None:
            walk = _Walk(layout, cpu(), source)
            walk.batch(address)
            batch = self._batch_of(walk, source.num_rows)
        return batch

    def _by_plan(self, layout: Layout, address: int, source: pa.RecordBatch) -> AnyBatch | None:
        """Do what :meth:`batch` does by one call of a kernel; None where that knows no answer."""
        plan, call = layout.plan, bound(kernel.import_batch)
        if plan is None or call is None:
            return None
        rows, num_nodes, num_spans = source.num_rows, 2 * layout.num_nodes, 3 * layout.num_buffers
        spans_at, room_at = num_nodes, num_nodes + num_spans
        state_at = room_at + _ROOM * layout.num_nodes
        table = np.empty(state_at + _STATE, np.int64)
        at = address_of(table)
        words = (
            *(*ALL_MEMORY, address, address_of(plan), plan.size, rows),
            *(at + 8 * room_at, state_at - room_at, at, num_nodes, at + 8 * spans_at, num_spans),
        )
        call(*words, 0, 0, at + 8 * state_at, _STATE)
        status, low, high, copied = table[state_at:].tolist()
        out = np.empty(copied, np.uint8)
        if status == _GROW:
            call(*words, address_of(out), copied, at + 8 * state_at, _STATE)
            status = int(table[state_at])
        if status != _DONE:
            return None
        regions = [foreign_region(low, high - low, source)] if high else []
        if copied:
            regions = [*regions, *[foreign_region(address_of(out), copied, out)] * (2 - len(regions))]
        dictionaries: dict[int, Dictionary] = {}
        for node, (*_, id_, _) in enumerate(layout.nodes) if layout.dictionaries else ():
            if id_ is not None:
                (there,) = _words(int(table[room_at + _ROOM * node + _STRUCT_AT]) + 8 * _DICTIONARY, 1)
                dictionary = self._dictionary(layout.dictionaries[id_], id_, there, cpu(), source)
                dictionaries |= dictionary.values.dictionaries | {id_: dictionary}
        return make_batch(
            self.batch_type,
            layout,
            rows,
            table[:num_nodes].reshape(-1, 2),
            dictionaries=dictionaries,
            spans=table[spans_at:room_at].reshape(-1, 3),
            regions=regions,
        )

    def device_batch(
        self, schema_capsule: Any, capsule: Any, dtypes: Mapping[Any, Any] | None = None
    ) -> AnyBatch | None:
        """Return what two capsules hold as a batch on its device, over the same memory; ``None`` on the host.

        The current stream waits for the struct's event. The host copies the ends of text and lists, all at once.
        """
        address = address_in(capsule, b"arrow_device_array")
        device = device_by_id(*c_structs.device_in(address))
        if device.is_host:
            return None
        try:
            schema = pa.Schema._import_from_c_capsule(schema_capsule)
        except pa.ArrowException as error:
            raise UsageError("the data of a device are no record batch", found=str(error)) from error
        if c_structs.is_released(address):  # its consumer may have freed its event
            raise UsageError("a struct of a device was released, or taken by another consumer")
        event = c_structs.event_in(address)
        if event is not None:
            device.wait_event(event)
        walk = _Walk(Layout.of(with_names_of_cudf(schema, dtypes)), device, capsule)
        walk.batch(address)
        return self._batch_of(walk, walk.num_rows)

    def _batch_of(self, walk: _Walk, num_rows: int) -> AnyBatch:
        layout, device = walk.layout, walk.device
        # Lengths, null counts and offsets.
        table = np.array(walk.words, np.int64).reshape(-1, STRUCT_WORDS)[:, :3]
        counts = tuple(walk.variadic_counts)
        sizes, starts = walk.sizes(table), np.array(walk.pointers, np.int64)
        present = sizes != 0
        spans, regions = np.zeros((len(sizes), 3), np.int64), []
        if present.any():  # in one region from the first to the last of what the owner keeps alive
            begin, end = int(starts[present].min()), int((starts + sizes)[present].max())
            spans[:, 1] = (starts - begin) * present
            spans[:, 2] = sizes
            regions = [foreign_region(begin, end - begin, walk.owner, device)]
        parts = Parts(layout, np.ascontiguousarray(table[:, :2]), Spans(spans, regions), counts)
        if walk.start or table[:, 2].any() or (table[:, 1] < 0).any():
            parts = slice_parts(parts, device, walk.start, num_rows, offsets=table[:, 2], count=True)
        dictionaries: dict[int, Dictionary] = {}
        for id_, address in walk.dictionaries:
            dictionary = self._dictionary(layout.dictionaries[id_], id_, address, device, walk.owner)
            dictionaries |= dictionary.values.dictionaries | {id_: dictionary}
        return make_batch(
            self.batch_type,
            layout,
            num_rows,
            parts.nodes,
            variadic_counts=counts,
            dictionaries=dictionaries,
            spans=parts.spans.table,
            regions=parts.spans.regions,
            device=device,
        )

    def _dictionary(
        self, layout: Layout, id_: int, address: int, device: Device, owner: object
    ) -> Dictionary:
        walk = _Walk(layout, device, owner)
        walk.visit(0, address)
        # While a dictionary is alive no other can be at its addresses, so equal words mean the same one.
        mark = ([words[:5] for words in walk.words], walk.pointers, walk.variadic_sizes)
        known = self._known.get(id_)
        if known is not None and known[0] == mark and not walk.dictionaries:
            return known[1]
        dictionary = Dictionary(id_, self._batch_of(walk, walk.words[0][0]))
        self._known[id_] = (mark, dictionary)
        return dictionary


_GetStruct: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_GetLastError: Final = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
_SCHEMA_WORDS: Final = 9


class _Struct(ctypes.Structure):
    """``struct ArrowDeviceArrayStream``."""

    _fields_ = [
        ("device_type", ctypes.c_int32),
        ("get_schema", _GetStruct),
        ("get_next", _GetStruct),
        ("get_last_error", _GetLastError),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    ]


def device_stream(capsule: Any, importer: Importer[AnyBatch]) -> tuple[pa.Schema, Iterator[AnyBatch]]:
    """Return the schema of a stream and its batches, each on its device and over the producer's memory.

    The capsule releases the stream when it is dropped.
    """
    address = address_in(capsule, b"arrow_device_array_stream")
    stream = _Struct.from_address(address)
    if not stream.release:
        raise UsageError("the stream of a device was released, or taken by another consumer")
    words = (ctypes.c_int64 * _SCHEMA_WORDS)()
    _check_status(stream, stream.get_schema(address, ctypes.addressof(words)), "schema")
    try:
        schema = pa.Schema._import_from_c(ctypes.addressof(words))
    except pa.ArrowException as error:
        raise UsageError("the data of a device are no record batches", found=str(error)) from error
    return with_names_of_cudf(schema), _batches(capsule, stream, schema, importer)


def _check_status(stream: _Struct, status: int, what: str) -> None:
    if status:
        message = stream.get_last_error(ctypes.addressof(stream)) if stream.get_last_error else None
        words = message.decode(errors="replace") if message else os.strerror(status)
        raise DeviceError(f"a stream of a device could not give its {what}", found=f"{words} ({status})")


def _batches(
    owner: object, stream: _Struct, schema: pa.Schema, importer: Importer[AnyBatch]
) -> Iterator[AnyBatch]:
    """Yield the batches of a stream that lives as long as its owner."""
    while owner is not None:
        capsule = c_structs.empty_device_capsule()
        address = address_in(capsule, b"arrow_device_array")
        _check_status(stream, stream.get_next(ctypes.addressof(stream), address), "batch")
        if c_structs.is_released(address):
            return
        named = schema.__arrow_c_schema__()
        if c_structs.device_in(address)[0] == CPU_DEVICE_TYPE:
            try:
                host = pa.RecordBatch._import_from_c_device_capsule(named, capsule)
            except pa.ArrowException as error:
                what = "a batch of a stream is not what its schema says"
                raise UsageError(what, found=str(error)) from error
            batch: AnyBatch | None = importer.batch(host)
            del host
        else:
            batch = importer.device_batch(named, capsule)
        assert batch is not None
        del capsule
        yield batch
        del batch
