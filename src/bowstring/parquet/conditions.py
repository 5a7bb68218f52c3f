"""Filters as trees of comparisons of a column with a constant, taken apart from pyarrow's expressions.

pyarrow does not say what an expression consists of. The form in which it pickles one is a file of Arrow IPC: its
metadata name the parts one after the other, and its columns are the constants.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bowstring.errors import BowstringError
from bowstring.ipc.flatbuf.message import decode_message
from bowstring.ipc.flatbuf.reader import Tables

_PREFIX: Final = struct.Struct("<8sIi")
COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
OPPOSITE: Final = {
    "equal": "not_equal",
    "not_equal": "equal",
    "less": "greater_equal",
    "less_equal": "greater",
    "greater": "less_equal",
    "greater_equal": "less",
}
_TURNED: Final = {
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}
LOGIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "and_kleene": operator.and_,
    "or_kleene": operator.or_,
}
_Pairs = Sequence[tuple[bytes, bytes]]


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """What holds for a row, or does not, or is null."""

    # pyarrow's name of a comparison, of ``is_in``, ``is_null``, ``is_valid`` or ``is_nan``; of a connection
    # of `parts` (``and_kleene``, ``or_kleene``, ``invert``); or ``""`` for an `expression` that is not
    # analysed.
    call: str
    path: tuple[str, ...] = ()  # the names of the column that is compared, and of the fields inside of it
    value: Any = None  # what it is compared with; of ``is_null``, whether NaN is one
    parts: tuple[Condition, ...] = ()
    expression: Any = None
    # The columns that the `expression` refers to, ``None`` where that cannot be found out.
    names: tuple[str, ...] | None = ()

    def leaves(self) -> Iterable[Condition]:
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()

    def columns(self) -> Iterator[str]:
        for leaf in self.leaves():
            yield from (*leaf.path[:1], *(leaf.names or ()))

    def joined(self, expressions: Iterable[Any]) -> Any:
        if self.call == "invert":
            [only] = expressions
            return ~only
        return functools.reduce(LOGIC[self.call], expressions)


def connected(call: str, parts: Iterable[Condition]) -> Condition:
    """Return conditions of which one must hold, or all; long chains stay flat."""
    every: list[Condition] = []
    for part in parts:
        every += part.parts if part.call == call else (part,)
    return every[0] if len(every) == 1 else Condition(call, parts=tuple(every))


def condition_of(expression: Any) -> Condition:
    """Return what an expression consists of, as far as that can be found out."""
    try:
        stored = expression.__reduce__()[1][0]
        pairs = _pairs(stored.to_pybytes())
        constants = pa.ipc.open_file(stored).get_batch(0)
        return _parsed(pairs, constants, type(expression)._deserialize)
    except (pa.ArrowException, BowstringError, struct.error, TypeError, ValueError, LookupError):
        return Condition("", expression=expression, names=None)


def _pairs(stored: bytes) -> _Pairs:
    """Return the parts of an expression one after the other: names are there more than once."""
    _, _, size = _PREFIX.unpack_from(stored)
    message = decode_message(stored[_PREFIX.size : _PREFIX.size + size])
    tables = Tables(message.data)
    return tables.key_values(message.header, tables.slots(message.header, "Schema")[2], "Schema").pairs


class _Call(NamedTuple):
    name: str
    start: int
    arguments: list[Any]
    options: list[Any]


def _parsed(pairs: _Pairs, constants: pa.RecordBatch, deserialize: Callable[[pa.Buffer], Any]) -> Condition:
    """Return the condition that the parts are; the arguments of a call are conditions, constants and paths."""
    outermost = _Call("", 0, [], [])
    calls = [outermost]
    inside = 0
    for position, (key, value) in enumerate(pairs):
        arguments = calls[-1].arguments
        if key == b"call":
            calls.append(_Call(value.decode(), position, [], []))
        elif key == b"literal":
            arguments.append(constants.column(int(value))[0])
        elif key == b"options":
            calls[-1].options.append(constants.column(int(value))[0])
        elif key == b"nested_field_ref":
            arguments.append(())
            inside = int(value)
        elif key == b"field_ref" and inside:
            arguments[-1] += (value.decode(),)
            inside -= 1
        elif key == b"field_ref":
            arguments.append((value.decode(),))
        elif key == b"end":
            call = calls.pop()
            condition = _analysed(call)
            if condition is None:
                part = deserialize(_stored(pairs[call.start : position + 1], constants))
                condition = Condition("", expression=part, names=_names(call.arguments))
            calls[-1].arguments.append(condition)
        else:
            raise ValueError(key)
    [whole] = outermost.arguments
    return _as_condition(whole)


def _analysed(call: _Call) -> Condition | None:
    """Return a call as a condition, ``None`` for those that are left to pyarrow."""
    name, _, arguments, options = call
    if name in LOGIC:
        return connected(name, map(_as_condition, arguments))
    if name == "invert":
        return Condition(name, parts=(_as_condition(arguments[0]),))
    first = arguments[0] if arguments else None
    if name in COMPARISONS and len(arguments) == 2:
        second = arguments[1]
        if isinstance(first, pa.Scalar):
            name, first, second = _TURNED.get(name, name), second, first
        if isinstance(first, tuple) and isinstance(second, pa.Scalar):
            return Condition(name, first, second)
    if not isinstance(first, tuple):
        return None
    if name in ("is_valid", "is_nan"):
        return Condition(name, first)
    if name == "is_null":
        return Condition(name, first, options[0]["nan_is_null"].as_py())
    if name == "is_in" and options[0]["null_matching_behavior"].as_py() == 0:
        return Condition(name, first, options[0]["value_set"].values)
    return None


def _as_condition(argument: Any) -> Condition:
    if isinstance(argument, Condition):
        return argument
    if isinstance(argument, tuple):  # a column of booleans
        return Condition("equal", argument, pa.scalar(True))
    return Condition("", expression=pc.scalar(argument))


def _stored(part: _Pairs, constants: pa.RecordBatch) -> pa.Buffer:
    """Return a part of an expression in the form of one."""
    schema = pa.schema(list(constants.schema), metadata=pa.KeyValueMetadata(list(part)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(constants.columns, schema=schema))
    return sink.getvalue()


def _names(arguments: Iterable[Any]) -> tuple[str, ...]:
    names: list[str] = []
    for argument in arguments:
        if isinstance(argument, tuple):
            names.append(argument[0])
        elif isinstance(argument, Condition):
            names += argument.columns()
    return tuple(dict.fromkeys(names))
