"""Example arguments for the kernels of JSON: two parts of rows, right and wrong ones, of every kind of value."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bowstring.kernels.json import order as ordering
from bowstring.kernels.json import read as reading
from bowstring.kernels.json import write as writing
from bowstring.kernels.json.keys import NAME, PLAN, SPARE, STATE
from bowstring.kernels.json.tree import NODE, NOTHING
from bowstring.kernels.launch import launch
from bowstring.kernels.signature import Kernel
from bowstring.kernels.variant import read_objects

Array = np.ndarray[Any, Any]
Case = tuple[int, tuple[Any, ...]]

REPEATED = '{"a":1,"b":{"a":[2,"x"],"a":3},"a":"new","b":{"c":[4]}}'
RIGHT = [
    '{"b":1,"a":-129,"c":[70000,-5000000000,true,false,null]}',
    '{"b":{"a":{"b":2},"\\u0063":3},"a":"text","c":[]}',
    '["\\ud83d\\ude00\\n\\"", "é 中 😀", "' + "long " * 15 + '"]',
    " [ 1.50 , -0.0, 12345678901.5, 0.00000000000000000001, 12345678901234567890123456.25 ] ",
    "[1e3,-2.5E-7,1e-320,9007199254740993e0,123456789012345678901234567890e-5,1E22]",
    "{" + ",".join(f'"{k * 7 % 40:02}":{k}' for k in range(40)) + "}",
    "[" + "1," * 260 + "1]",
    '"' + "x" * 70 + '"',
    "9223372036854775807",
]
WRONG = [
    '{"a":1,"b":2,"a":3}',
    '{"a":{"a":1},"a":2}',
    '{"new":1,"other":',
    '{"a" 1}',
    "[1,]",
    "[1 2]",
    "01",
    "-",
    "1.",
    "1e",
    "1e400",
    "nul",
    '"\\x"',
    '"\\ud800"',
    '"\x01"',
    '"\xff"',
    '"open',
    "[[[[[[1]]]]]]",
    "",
    "1 1",
    REPEATED,
]
DEPTH = 4


def read_arguments(rules: int, slots: int) -> tuple[Any, ...]:
    """Return the arguments of a reading of all rows, in two parts with tables of so many slots."""
    rows = [text.encode("latin-1" if "\xff" in text else "utf-8") for text in RIGHT + WRONG]
    data = np.frombuffer(b"".join(rows), np.uint8)
    stops = np.cumsum([len(row) for row in rows])
    starts = stops - [len(row) for row in rows]
    starts[-1], stops[-1] = 5, len(data) + 1  # a row that is not within the data
    statuses = np.zeros(len(rows), np.uint8)
    statuses[3] = NOTHING
    nodes, pool = 1000, len(data) + int(SPARE)
    half = len(rows) // 2
    plan = np.array(
        [[0, half, 0, nodes, 0, slots, 0, pool], [half, len(rows), nodes, nodes, slots, slots, pool, pool]],
        np.uint64,
    )
    assert plan.shape[1] == PLAN
    words = (nodes * 2 * int(NODE), nodes * 2, slots * 2, slots * int(NAME))
    scratch = [np.zeros(count, np.uint64) for count in words]
    found = np.zeros((2, len(rows)), np.uint64)
    places = np.zeros(len(rows), np.int64)
    return (
        *(data, starts, stops, plan.reshape(-1), rules, DEPTH, 12345),
        *(statuses, places, *found, *scratch),
        *(np.zeros(2 * pool, np.uint8), np.zeros(2 * int(STATE), np.uint64)),
    )


def readings(_: np.random.Generator) -> Iterator[Case]:
    for rules, slots in ((0, 128), (1, 128), (2, 128), (3, 4)):
        yield 2, read_arguments(rules, slots)


SHARED: Any = {"b": [1, "x"], "a": None}
OBJECTS: list[list[Any]] = [
    [
        {"b": 1, "a": -(1 << 40), "é": [True, False, None, 1.5]},
        None,
        SHARED,
        [SHARED, (SHARED, "x" * 300), "ü" * 70],
    ],
    [(), {}, -(1 << 63), (1 << 63) - 1, b"\x0c\x01", "text", 1 << 31, -(1 << 31), {"c": {"c": {}}}],
    [1 << 63],
    [-(1 << 200)],
    [{"a": 1, 2: 3}],
    [{"a", "b"}],
    ["\ud800"],
    [{"\ud800": 1}],
    [b""],
    [[[[[[]]]]]],
    [{str(k): k for k in range(9)}],
]


def object_arguments(rows: list[Any], rules: int, slots: int, nodes: int) -> tuple[Any, ...]:
    """Return the arguments of a reading of rows of Python, with room for so many keys and nodes."""
    data = np.frombuffer(marshal.dumps(rows, 4), np.uint8)
    plan = np.array([0, 0, 0, nodes, 0, slots, 0, 64], np.uint64)
    words = (len(data), nodes * int(NODE), slots, slots // 2 * int(NAME))
    scratch = [np.zeros(count, np.uint64) for count in words]
    found = np.zeros((2, len(rows)), np.uint64)
    return (
        *(data, plan, rules, DEPTH, 12345, *found, *scratch),
        *(np.zeros(64, np.uint8), np.zeros(int(STATE), np.uint64)),
    )


def objects(_: np.random.Generator) -> Iterator[Case]:
    for rows in OBJECTS:
        for rules, slots, nodes in ((0, 32, 200), (1, 32, 200), (0, 4, 200), (0, 32, 3)):
            yield 1, object_arguments(rows, rules, slots, nodes)


def counts(_: np.random.Generator) -> Iterator[Case]:
    data, starts, stops, *_others = read_arguments(0, 4)
    rows = len(starts)
    yield rows, (data, starts, stops, np.zeros(rows, np.int64), np.zeros(rows, np.int64))


def measure_arguments() -> tuple[Any, ...]:
    arguments = read_arguments(2, 128)
    launch(reading.read_rows, 2, *arguments)
    firsts, found, nodes, children = arguments[9:13]
    ranks = np.arange(300, dtype=np.uint32)[::-1].copy()
    bases = np.arange(len(firsts), dtype=np.uint64) // np.uint64(4)
    return firsts, found, bases, ranks, nodes, children, np.zeros(len(firsts), np.int64)


def measurements(_: np.random.Generator) -> Iterator[Case]:
    arguments = measure_arguments()
    yield len(arguments[0]), arguments


def writings(_: np.random.Generator) -> Iterator[Case]:
    data, _starts, stops, *_others = read_arguments(0, 128)
    arguments = measure_arguments()
    launch(writing.measure_rows, len(arguments[0]), *arguments)
    firsts, found, _bases, _ranks, nodes, children, measured = arguments
    offsets = np.concatenate([[0], np.cumsum(measured)])
    out = np.zeros(int(offsets[-1]), np.uint8)
    yield len(firsts), (data, stops, firsts, found, offsets, nodes, children, out)


def key_arguments(drawn: np.random.Generator) -> tuple[Any, ...]:
    """Return the arguments of an ordering of keys: none, one, some that begin alike, some that come again."""
    texts = [
        b"",
        b"",
        b"user",
        b"user id",
        b"user id\0",
        b"user name",
        b"user",
        b"x" * 20 + b"b",
        b"x" * 20 + b"a",
    ]
    texts += [b"key %d" % number for number in drawn.integers(0, 30, 40).tolist()]
    lengths = np.array([len(text) for text in texts], np.uint64)
    count = len(texts)
    bounds = np.array([0, 0, 1, 9, count], np.int64)
    numbers = [np.zeros(2 * count, np.uint32), np.zeros(count, np.uint32)]
    sizes = [np.zeros(len(bounds) - 1, np.int64) for _ in range(2)]
    data = np.frombuffer(b"".join(texts), np.uint8)
    return (bounds, lengths.cumsum() - lengths, lengths, data, np.zeros(count, np.uint64), *numbers, *sizes)


def orders(drawn: np.random.Generator) -> Iterator[Case]:
    arguments = key_arguments(drawn)
    yield len(arguments[-1]), arguments


def key_writings(drawn: np.random.Generator) -> Iterator[Case]:
    arguments = key_arguments(drawn)
    launch(ordering.order_keys, len(arguments[-1]), *arguments)
    bounds, starts, lengths, data, _words, order, _ranks, counted, sizes = arguments
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    out = np.zeros(int(offsets[-1]), np.uint8)
    yield len(sizes), (bounds, starts, lengths, data, order, counted, offsets, out)


CASES: dict[Kernel, Callable[[np.random.Generator], Iterator[Case]]] = {
    read_objects.read_objects: objects,
    ordering.order_keys: orders,
    ordering.write_keys: key_writings,
    reading.count_nodes: counts,
    reading.read_rows: readings,
    writing.measure_rows: measurements,
    writing.write_rows: writings,
}
