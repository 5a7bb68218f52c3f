"""Export of batches through Arrow's C data interface, without a copy and at any depth of any type.

All structs of a batch lie in one block of words, laid out by a plan that is made once per layout: the structs
of the nodes, then the tables of child pointers and of buffer pointers, the sizes of variadic buffers, and
words of zeros that empty buffers point to, because some consumers do not take a null pointer.
"""

from __future__ import annotations

import abc
import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.interchange.capsule import (
    STRUCT_BYTES,
    STRUCT_WORDS,
    Anchor,
    release,
    write_device,
)
from bowstring.columnar.layout import Layout
from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import BatchData, batch_parts, owner_of
from bowstring.columnar.spans import Table
from bowstring.errors import NotExportable, NotOnDevice, Unsupported
from bowstring.memory import Device
from bowstring.memory.dlpack import address_in

if TYPE_CHECKING:
    from bowstring.memory.cuda.events import RecordedEvent

_ZEROS = 4  # words; the widest slot is 256 bits
MOST_LEVELS = 64  # that Arrow C++ imports; the batch is the first one
# What is kept of the plans of one layout; one of more words is kept alone.
_MOST_PLANS = 16
_MOST_WORDS = 1 << 16
_LONGEST_INSIDE = 12  # bytes of a value that lies in its view
_FIELDS = 8  # the words of a struct that describe it; release and private_data are pyarrow's


class _Plan:
    """Where everything goes in the block of words of one layout with given variadic counts."""

    def __init__(self, layout: Layout, counts: tuple[int, ...]) -> None:
        nodes = layout.num_nodes
        first = layout.first_buffers(counts)
        own = np.diff(first)
        pointers = own.copy()
        pointers[list(layout.variadic_nodes)] += 1  # the sizes of the variadic buffers
        ends = np.cumsum(pointers)
        num_children = np.array([len(node.children) for node in layout.nodes], np.int64)
        child_ends = np.cumsum(num_children)

        # One struct more than there are nodes: the batch itself.
        self.structs = nodes + 1
        self.children_at = self.structs * STRUCT_WORDS
        self.buffers_at = self.children_at + int(num_children.sum()) + len(layout.columns)
        self.sizes_at = self.buffers_at + int(pointers.sum()) + 1
        self.zeros_at = self.sizes_at + sum(counts)
        self.words = self.zeros_at + _ZEROS

        self.template = np.zeros(self.words, np.int64)
        # What is counted from the beginning of the block, and becomes an address with that of the block.
        self.relative = np.zeros(self.words, np.int64)
        fields, relative = self.fields(self.template), self.fields(self.relative)
        fields[:nodes, 3] = pointers
        fields[:nodes, 4] = num_children
        fields[:nodes, 5] = 8 * (self.buffers_at + ends - pointers)
        fields[:nodes, 6] = 8 * (self.children_at + child_ends - num_children)
        # A struct array has one buffer, its validity, which a batch has not: the word before the sizes is 0.
        columns_at = self.buffers_at - len(layout.columns)
        fields[nodes, 3:7] = 1, len(layout.columns), 8 * (self.sizes_at - 1), 8 * columns_at
        relative[:, 5] = 1
        relative[:, 6] = fields[:, 4] != 0
        fields[:, 6] *= relative[:, 6]
        children = [child for node in layout.nodes for child in node.children] + list(layout.columns)
        self.template[self.children_at : self.buffers_at] = STRUCT_BYTES * np.array(children, np.int64)
        self.relative[self.children_at : self.buffers_at] = 1
        self.validity = layout.fixed_buffers(counts)[layout.validity_buffers]
        self.dictionaries = [
            (index, node.dictionary_id)
            for index, node in enumerate(layout.nodes)
            if node.dictionary_id is not None
        ]
        # Nodes whose null slots pyarrow follows, with the first and the end of their buffers.
        self.followed = [
            (index, int(first[index]), int(first[index + 1]), node.dictionary_id)
            for index, node in enumerate(layout.nodes)
            if node.dictionary_id is not None or Kind.VIEWS in node.buffer_kinds
        ]
        self.offset_nodes = [each.node for each in layout.offsets]
        self.offset_rows = [int(first[node]) + 1 for node in self.offset_nodes]
        self.is_plain = not layout.variadic_nodes
        if not self.is_plain:
            # Some nodes have one pointer more than buffers: the variadic sizes.
            before = ends - pointers
            owners = np.repeat(np.arange(nodes), own)
            self.slots = self.buffers_at + np.arange(len(owners)) + (before - first[:-1])[owners]
            self.size_slots = [
                self.buffers_at + int(before[node] + own[node]) for node in layout.variadic_nodes
            ]
            self.size_starts = np.cumsum([0, *counts])[:-1].tolist()
            fixed = np.zeros(len(owners), np.bool_)
            fixed[layout.fixed_buffers(counts)] = True
            self.variadic = np.flatnonzero(~fixed)

    def fields(self, words: Table) -> Table:
        return words[: self.children_at].reshape(self.structs, STRUCT_WORDS)[:, :_FIELDS]


class Block:
    """The structs of a batch; that of the node `root` lacks a release callback where it is to be copied."""

    def __init__(
        self, batch: BatchData, root: int, event: RecordedEvent | None = None, *, copied: bool = False
    ) -> None:
        parts = batch_parts(batch)
        layout, counts = batch.layout, parts.variadic_counts
        plan: _Plan | None = layout.exporting.get(counts)
        if plan is None:
            plan = _Plan(layout, counts)
            count = len(layout.exporting) + 1
            if count > _MOST_PLANS or count * plan.words > _MOST_WORDS:
                layout.exporting = {}
            layout.exporting[counts] = plan
        self.words = words = np.empty(plan.words, np.int64)
        self.base: int = words.__array_interface__["data"][0]
        whole = plan.relative * self.base
        whole += plan.template
        words[:] = whole  # no struct has a release callback yet
        self.root: int = self.base + root * STRUCT_BYTES
        self.kept: list[object] = []
        self._filled: list[int] = []
        self._inner: list[Block] = []
        try:
            for _, id_ in plan.dictionaries:
                self._inner.append(Block(batch.dictionaries[id_].values, 0))
            self.anchor = Anchor((words, owner_of(batch), self._inner, event, self.kept))
            fields = plan.fields(whole)
            fields[:-1, :2] = parts.nodes
            fields[-1, 0] = batch.num_rows
            self._write_buffers(batch, plan)
            structs = range(self.base, self.base + (plan.structs - 1) * STRUCT_BYTES, STRUCT_BYTES)
            self._filled = [address for address in structs if address != self.root]
            if not copied:
                self._filled.append(self.root)
            for address in self._filled:
                self.anchor.fill(address)
            plan.fields(words)[:] = fields
            for (index, _), block in zip(plan.dictionaries, self._inner, strict=True):
                words[index * STRUCT_WORDS + 7] = block.base
        except BaseException:  # an interrupt
            self.abandon()
            raise

    def abandon(self) -> None:
        """Release what is filled, which keeps the batch alive until somebody takes it."""
        for address in (*self._filled, *(block.root for block in self._inner)):
            release(address)

    def _write_buffers(self, batch: BatchData, plan: _Plan) -> None:
        parts = batch_parts(batch)
        words = self.words
        addresses = parts.spans.addresses()
        if batch.device.is_host:
            absent = addresses == 0
            absent[plan.validity] = False
            if plan.offset_nodes:
                # Without slots, the first offset may be anything, and pyarrow follows it.
                absent[plan.offset_rows] |= parts.nodes[plan.offset_nodes, 0] == 0
            addresses[absent] = self.base + 8 * plan.zeros_at
            if plan.followed:
                self.kept += _replace_strays(batch, plan.followed, addresses)
        if plan.is_plain:
            words[plan.buffers_at : plan.buffers_at + len(addresses)] = addresses
            return
        words[plan.slots] = addresses
        words[plan.sizes_at : plan.zeros_at] = parts.spans.table[plan.variadic, 2]
        for slot, start in zip(plan.size_slots, plan.size_starts, strict=True):
            words[slot] = self.base + 8 * (plan.sizes_at + start)


def _replace_strays(
    batch: BatchData, nodes: list[tuple[int, int, int, int | None]], addresses: Table
) -> list[npt.NDArray[Any]]:
    """Let `addresses` point to copies of slots where a null one leads outside, with zeros for the null ones.

    Returns the copies. `nodes` are views and indices, which pyarrow follows where they are null: its cast of views
    adds up their sizes, its unification of dictionaries looks them up.
    """
    parts = batch_parts(batch)
    kept = []
    spans = parts.spans
    for node, validity, end, dictionary in nodes:
        rows, nulls = parts.nodes[node].tolist()
        if not (nulls and spans.table[validity, 2]):
            continue
        width = batch.layout.nodes[node].width or 16
        raw = spans.array(validity + 1)
        slots = raw[: min(rows, len(raw) // width) * width].reshape(-1, width)
        is_null = np.unpackbits(spans.array(validity), count=len(slots), bitorder="little") == 0
        null = slots[is_null]
        if dictionary is None:
            size, _, buffer, offset = null.view("<i4").T
            sizes = spans.table[validity + 2 : end, 2]
            known = (buffer >= 0) & (buffer < len(sizes))
            reach = np.zeros(len(null), np.int64)
            reach[known] = sizes[buffer[known]]
            inside = (offset >= 0) & (offset.astype(np.int64) + size <= reach)
            strays = (size < 0) | ((size > _LONGEST_INSIDE) & ~inside)
        else:
            indices = null.view(f"<u{width}")  # negative ones are the largest
            size = len(batch.dictionaries[dictionary])
            if str(batch.layout.nodes[node].type).startswith("u"):
                strays = indices >= size
            else:
                most = np.iinfo(indices.dtype).max
                # -1 is what pandas has under nulls: it stays in pyarrow's own memory, and is not worth a copy.
                strays = (indices >= min(size, most // 2 + 1)) & (indices != most)
        if strays.any():
            slots = slots.copy()
            slots[is_null] = 0
            addresses[validity + 1] = slots.ctypes.data
            kept.append(slots)
    return kept


def _capsule(
    batch: BatchData, root: int, event: RecordedEvent | None = None, *, device: Device | None = None
) -> Any:
    """Return a capsule that holds a node of a batch: ``arrow_device_array`` of a device, or ``arrow_array``."""
    check_depth(batch.layout)
    block = None
    try:
        block = Block(batch, root, event, copied=True)
        capsule = block.anchor.capsule() if device is None else block.anchor.device_capsule()
        address = address_in(capsule, b"arrow_array" if device is None else b"arrow_device_array")
        ctypes.memmove(address, block.root, 8 * _FIELDS)
        if device is not None:
            write_device(address, device, event)
    except BaseException:  # an interrupt
        if block is not None:
            block.abandon()
        raise
    return capsule


def check_depth(layout: Layout) -> None:
    """Refuse a batch of more than 64 levels: Arrow C++ does not import it by the C data interface."""
    if layout.depth > MOST_LEVELS:
        raise NotExportable(
            "the batch is nested too deeply for the C data interface",
            expected=f"at most {MOST_LEVELS} levels",
            found=layout.depth,
            hint="Take the columns that are not, with select().",
        )


def to_pyarrow_batch(batch: BatchData) -> pa.RecordBatch:
    """Return a batch on the host as pyarrow's, over the same memory."""
    check_depth(batch.layout)
    schema = batch.schema  # before the structs are made, which an interrupt must not leave without a taker
    return pa.RecordBatch._import_from_c(Block(batch, batch.layout.num_nodes).root, schema)


class Exporting(abc.ABC):
    """Speaks the Arrow PyCapsule interface, on the host and on devices: batches and columns."""

    __slots__ = ()

    device: Device

    @abc.abstractmethod
    def to_arrow(self) -> Any:
        """Return it as pyarrow's."""

    @abc.abstractmethod
    def __arrow_c_schema__(self) -> Any: ...

    @abc.abstractmethod
    def _root(self) -> tuple[BatchData, int]:
        """Return a batch, and the node whose struct is exported; the number of nodes stands for the batch."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        if not self.device.is_host:
            raise NotOnDevice(
                "the data are not on the host",
                found=self.device.name,
                hint='Use to_device("cpu") first, or __arrow_c_device_array__.',
            )
        if requested_schema is not None:
            converted: tuple[Any, Any] = self.to_arrow().__arrow_c_array__(requested_schema)
            return converted
        schema = self.__arrow_c_schema__()
        return schema, _capsule(*self._root())

    def __arrow_c_device_array__(self, requested_schema: Any = None, **options: Any) -> tuple[Any, Any]:
        unknown = [name for name, value in options.items() if value is not None]
        if unknown:
            raise Unsupported("options of the C Device interface that are not known here", found=unknown)
        if requested_schema is not None and self.device.is_host:
            converted: tuple[Any, Any] = self.to_arrow().__arrow_c_device_array__(requested_schema)
            return converted
        # The event lives as long as the structs: its handle is noted as idle when the last of them is released.
        schema = self.__arrow_c_schema__()
        return schema, _capsule(*self._root(), self.device.record(), device=self.device)
