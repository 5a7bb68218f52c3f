"""Layouts against what pyarrow writes, since the wire is where a layout is a fact."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from bowstring.columnar import Kind
from bowstring.columnar.layout import Layout
from bowstring.errors import InvalidMetadata, LimitExceeded, Unsupported, UsageError
from bowstring.ipc.flatbuf.message import decode_message, decode_record_batch
from bowstring.kernels.ipc import batch as kernel
from bowstring.limits import DEFAULT_LIMITS, Limits

FLAT = {
    "null": (pa.null(), []),
    "bool": (pa.bool_(), [Kind.VALIDITY, Kind.BITS]),
    "int8": (pa.int8(), [Kind.VALIDITY, Kind.DATA]),
    "half": (pa.float16(), [Kind.VALIDITY, Kind.DATA]),
    "decimal256": (pa.decimal256(50), [Kind.VALIDITY, Kind.DATA]),
    "interval": (pa.month_day_nano_interval(), [Kind.VALIDITY, Kind.DATA]),
    "fixed": (pa.binary(5), [Kind.VALIDITY, Kind.DATA]),
    "utf8": (pa.string(), [Kind.VALIDITY, Kind.OFFSETS32, Kind.BYTES]),
    "large": (pa.large_binary(), [Kind.VALIDITY, Kind.OFFSETS64, Kind.BYTES]),
    "view": (pa.string_view(), [Kind.VALIDITY, Kind.VIEWS]),
    "uuid": (pa.uuid(), [Kind.VALIDITY, Kind.DATA]),
    "dictionary": (pa.dictionary(pa.int16(), pa.string()), [Kind.VALIDITY, Kind.DATA]),
}
NESTED = {
    "list": (pa.list_(pa.int8()), [Kind.VALIDITY, Kind.OFFSETS32], 1),
    "large_list": (pa.large_list(pa.int8()), [Kind.VALIDITY, Kind.OFFSETS64], 1),
    "fixed_size_list": (pa.list_(pa.int8(), 2), [Kind.VALIDITY], 1),
    "list_view": (pa.list_view(pa.int8()), [Kind.VALIDITY, Kind.STARTS32, Kind.SIZES32], 1),
    "large_list_view": (pa.large_list_view(pa.int8()), [Kind.VALIDITY, Kind.STARTS64, Kind.SIZES64], 1),
    "map": (pa.map_(pa.string(), pa.int8()), [Kind.VALIDITY, Kind.OFFSETS32], 3),
    "struct": (pa.struct({"x": pa.int8(), "y": pa.int8()}), [Kind.VALIDITY], 2),
    "sparse": (pa.sparse_union([pa.field("x", pa.int8())]), [Kind.TYPE_IDS], 1),
    "dense": (pa.dense_union([pa.field("x", pa.int8())]), [Kind.TYPE_IDS, Kind.STARTS32], 1),
    "run_ends": (pa.run_end_encoded(pa.int16(), pa.int8()), [], 2),
}


@pytest.mark.parametrize("name", FLAT)
def test_flat_types_have_one_node_with_their_buffers(name: str) -> None:
    """A flat column is one node, and its buffers are those of its physical type."""
    type_, kinds = FLAT[name]
    layout = Layout.of(pa.schema({"c": type_}))
    assert layout.num_nodes == 1
    assert list(layout.nodes[0].buffer_kinds) == kinds
    assert layout.is_flat
    assert layout.depth == (3 if pa.types.is_dictionary(type_) else 2)


@pytest.mark.parametrize("name", NESTED)
def test_nested_types_list_their_children_in_pre_order(name: str) -> None:
    """A nested column is followed by its descendants, each of which names its parent."""
    type_, kinds, descendants = NESTED[name]
    layout = Layout.of(pa.schema({"c": type_, "after": pa.int8()}))
    assert list(layout.nodes[0].buffer_kinds) == kinds
    assert layout.nodes[0].end == 1 + descendants
    assert layout.columns == (0, 1 + descendants)
    for parent, node in enumerate(layout.nodes):
        assert all(layout.nodes[child].parent == parent for child in node.children)


def test_node_and_buffer_counts_are_those_on_the_wire() -> None:
    """Counting nodes and buffers of every type gives what pyarrow writes for an empty batch of them."""
    types = [type_ for type_, *_ in [*FLAT.values(), *NESTED.values()]]
    types.append(pa.list_(pa.struct({"m": pa.map_(pa.string(), pa.list_view(pa.string_view()))})))
    schema = pa.schema([pa.field(str(index), type_) for index, type_ in enumerate(types)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([pa.nulls(0, type_) for type_ in types], schema=schema))
    messages = [message for message in pa.ipc.MessageReader.open_stream(sink.getvalue()) if message]
    header = decode_record_batch(decode_message(messages[-1].metadata))
    layout = Layout.of(schema)
    assert len(header.nodes) == layout.num_nodes
    assert len(header.buffers) == layout.num_buffers + sum(header.variadic_counts)
    assert len(header.variadic_counts) == len(layout.variadic_nodes)


def test_intervals_that_python_cannot_make_have_a_layout(arrow_test_data: object) -> None:
    """Month and day-time intervals come from files only, and are 4 and 8 bytes wide."""
    file = f"{arrow_test_data}/arrow-ipc-stream/integration/1.0.0-littleendian/generated_interval.stream"
    with pa.ipc.open_stream(file) as reader:
        layout = Layout.of(reader.schema)
    widths = {str(node.type): node.width for node in layout.nodes}
    assert widths["month_interval"] == 4
    assert widths["day_time_interval"] == 8


def test_dictionary_ids_count_up_in_pre_order_outer_before_inner() -> None:
    """Ids are given out as Arrow C++ does, and the layouts of values list inner dictionaries first."""
    inner = pa.dictionary(pa.int8(), pa.int32())
    outer = pa.dictionary(pa.int16(), pa.struct({"x": inner, "y": pa.list_(inner)}))
    layout = Layout.of(pa.schema({"a": inner, "b": pa.list_(outer), "c": inner}))
    assert layout.dictionary_ids == (0, 1, 2, 3, 4)
    assert list(layout.dictionaries) == [0, 2, 3, 1, 4]
    assert layout.dictionaries[1].dictionary_ids == (2, 3)
    assert [node.dictionary_id for node in layout.nodes] == [0, None, 1, 4]


def test_selection_takes_whole_subtrees_and_keeps_ids() -> None:
    """Selected columns keep their dictionary ids, and their nodes and buffers are found, variadic ones too."""
    dictionary = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema({"a": dictionary, "v": pa.list_(pa.string_view()), "d": dictionary, "i": pa.int8()})
    layout = Layout.of(schema, [5, 7])
    narrow, nodes, buffers = layout.select([2, 1], variadic_counts=[2])
    assert narrow.dictionary_ids == (7,)
    assert nodes.tolist() == [3, 1, 2]
    assert buffers.tolist() == [8, 9, 2, 3, 4, 5, 6, 7]
    with pytest.raises(UsageError):
        layout.select([4])
    with pytest.raises(UsageError):
        layout.first_buffers([1, 2])


def test_layouts_are_shared_but_not_between_metadata_or_ids() -> None:
    """The same schema gives the same object; other metadata or other ids do not."""
    schema = pa.schema({"a": pa.dictionary(pa.int8(), pa.string())})
    assert Layout.of(schema) is Layout.of(pa.schema(list(schema)))
    assert Layout.of(schema) is not Layout.of(schema, [4])
    described = schema.with_metadata({"k": "v"})
    assert Layout.of(described).schema.metadata == {b"k": b"v"}
    assert Layout.of(schema).schema.metadata is None


def test_layouts_are_not_shared_between_what_pyarrow_takes_for_equal() -> None:
    """Around extension types pyarrow overlooks list sizes and index types; a layout must not."""
    for one, other in (
        (pa.list_(pa.uuid(), 2), pa.list_(pa.uuid(), 3)),
        (pa.dictionary(pa.int8(), pa.uuid()), pa.dictionary(pa.int32(), pa.uuid())),
        (pa.dictionary(pa.int8(), pa.list_(pa.uuid(), 2)), pa.dictionary(pa.int8(), pa.list_(pa.uuid(), 3))),
    ):
        first, second = Layout.of(pa.schema({"a": one})), Layout.of(pa.schema({"a": other}))
        assert str(first.schema.field(0).type) == str(one)
        assert str(second.schema.field(0).type) == str(other)


class _Tagged(pa.ExtensionType):
    def __init__(self, tag: bytes) -> None:
        self.tag = tag
        super().__init__(pa.binary(), "tests.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return self.tag

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, serialized: bytes) -> _Tagged:
        return cls(serialized)


def test_layouts_are_not_shared_between_parameters_of_an_extension_type() -> None:
    """Types defined in Python are equal to pyarrow, whatever their parameters are; a layout has its own."""
    for make in (lambda type_: type_, pa.list_):
        for tag in (b"one", b"other"):
            found = Layout.of(pa.schema({"a": make(_Tagged(tag))})).schema.field(0).type
            assert (found if make is not pa.list_ else found.value_type).tag == tag


def test_what_cannot_be_laid_out_is_refused_by_name() -> None:
    """Ids that do not fit, nesting and width beyond the limits, and dictionaries of dictionaries are refused."""
    one = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema({"a": one})
    for ids in ([], [1, 2]):
        with pytest.raises(InvalidMetadata, match="dictionary id"):
            Layout.of(schema, ids)
    with pytest.raises(InvalidMetadata, match="share"):
        Layout.of(pa.schema({"a": one, "b": pa.dictionary(pa.int8(), pa.int64())}), [1, 1])
    with pytest.raises(Unsupported, match="dictionary"):
        Layout.of(pa.schema({"a": pa.dictionary(pa.int8(), one)}))
    deep = pa.int8()
    for _ in range(70):
        deep = pa.list_(deep)
    with pytest.raises(LimitExceeded, match="deep"):
        Layout.of(pa.schema({"a": deep}))
    wide = pa.schema([pa.field(str(index), pa.int8()) for index in range(10)])
    Layout.of(wide)
    with pytest.raises(LimitExceeded, match="too many"):
        Layout.of(wide, limits=DEFAULT_LIMITS.replace(columns=9))


def test_what_is_too_deep_or_too_wide_in_a_dictionary_is_named_by_its_column() -> None:
    """The values of a dictionary have a schema of their own, which no user knows."""
    deep = pa.int8()
    for _ in range(70):
        deep = pa.list_(deep)
    wide = pa.struct([(f"x{position}", pa.int8()) for position in range(9)])
    cases = ((deep, DEFAULT_LIMITS, "at column 'coded'"), (wide, Limits(columns=5), r"at coded\.values\.x4"))
    for values, limits, where in cases:
        schema = pa.schema({"a": pa.int8(), "coded": pa.dictionary(pa.int8(), values)})
        with pytest.raises(LimitExceeded, match=where):
            Layout.of(schema, limits=limits)


def test_bytes_that_buffers_need_never_overflow() -> None:
    """Lengths whose bytes do not fit 64 bits are never computed with: they are refused, or Python's integers."""
    layout = Layout.of(pa.schema({"a": pa.decimal256(10), "n": pa.null()}))
    longest = np.full(2, layout.longest)
    assert layout.minimum_lengths(longest).tolist() == [(layout.longest + 7) // 8, 32 * layout.longest]
    with pytest.raises(AssertionError):
        layout.minimum_lengths(np.array([1 << 60, 0]))
    exact = layout.minimum_lengths(np.array([1 << 60, 1 << 62], object))
    assert exact.tolist() == [1 << 57, 1 << 65]


def test_a_column_of_a_schema_that_was_let_in_can_be_taken_out_alone() -> None:
    """A layout that larger limits let in gives each node's own layout, the same one each time."""
    wide = pa.struct({name: pa.string() for name in "xyz"})
    type_: pa.DataType = pa.dictionary(pa.int8(), wide)
    for _ in range(DEFAULT_LIMITS.depth):
        type_ = pa.list_(type_)
    schema = pa.schema({"a": pa.int8(), "deep": type_})
    layout = Layout.of(schema, limits=Limits(depth=DEFAULT_LIMITS.depth + 8))
    alone = layout.alone(1, schema.field(1))
    assert (alone.schema.names, alone.dictionary_ids) == (["deep"], layout.dictionary_ids)
    assert alone is layout.alone(1, schema.field(1))


def test_a_plan_says_what_a_layout_says() -> None:
    """The plan of each type has a row for every node and buffer; types whose slots say too little have none."""
    without = {"view", "list_view", "large_list_view", "sparse", "dense", "run_ends"}
    types = {name: facts[0] for name, facts in (FLAT | NESTED).items()}
    for name, type_ in types.items():
        layout = Layout.of(pa.schema({"first": pa.int8(), "x": type_}))
        assert (layout.plan is None) == (name in without)
        if layout.plan is not None:
            head, nodes, buffers = int(kernel.HEAD), int(kernel.NODE_ROW), int(kernel.BUFFER_ROW)
            assert len(layout.plan) == head + nodes * layout.num_nodes + buffers * layout.num_buffers
            rows = layout.plan[head + nodes * layout.num_nodes :].reshape(-1, buffers)
            assert rows[:, :3].T.tolist() == [
                layout.buffer_nodes.tolist(),
                layout.buffer_bits.tolist(),
                layout.buffer_end_bits.tolist(),
            ]
    assert Layout.of(pa.schema([])).plan is None
