"""Decoding a Variant's metadata and value, byte by byte and with every bound checked.

This is the careful way, one value at a time: what `to_python`, `schema_of` and their kin stand on, and what the
kernels are compared with. Nothing in the bytes can make it read outside of them, recurse, or work longer than
the value is long ("Variant Binary Encoding" is the section of the specification).
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from bowstring.errors import InvalidBody, LimitExceeded, Truncated
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.variant.codec import primitives
from bowstring.variant.codec.primitives import Budget, Path, Value, at, check_room, too_much

_PRIMITIVE, _SHORT_STRING, _OBJECT, _ARRAY = range(4)
# Shared children are legal. A tree that shares none never comes near these: its nodes and their payloads are
# disjoint bytes of the value.
SHARING: Final = 16

# First byte, end of the bytes that it may take, and the step that leads to it.
_Child = tuple[int, int, str | int]


def decode(metadata: bytes | tuple[str, ...], value: bytes, *, limits: Limits = DEFAULT_LIMITS) -> Value:
    """Return one Variant value as a typed tree; bytes behind its end are left alone. Many values that share a
    metadata take what :func:`decode_names` made of it, once.
    """
    names = decode_names(metadata) if isinstance(metadata, bytes) else metadata
    budget = Budget(nodes=len(value), bytes=SHARING * len(value))
    root: list[Value] = []
    # First byte, end of the bytes that it may take, depth, path, and where the decoded value goes.
    work: list[tuple[int, int, int, Path, Any]] = [(0, len(value), 0, None, root)]
    while work:
        position, end, depth, path, target = work.pop()
        if position >= end:
            raise Truncated("a Variant value is missing", expected="a header byte", where=at(path, position))
        header = value[position]
        basic = header & 3
        if basic == _PRIMITIVE:
            decoded = primitives.primitive(value, position, end, budget, path)
        elif basic == _SHORT_STRING:
            stop = position + 1 + (header >> 2)
            decoded = Value("string", primitives.string(value, position + 1, stop, end, budget, path))
        else:
            if depth >= limits.depth:
                raise LimitExceeded(
                    "a Variant is nested too deeply",
                    expected=f"at most {limits.depth} levels",
                    where=at(path, position),
                    hint="Raise Limits.depth if the data are to be trusted.",
                )
            inside: Any = {} if basic == _OBJECT else []
            if basic == _OBJECT:
                children = _fields(value, position, end, names, budget, path)
                decoded = Value("object", inside)
            else:
                children = _elements(value, position, end, budget, path)
                decoded = Value("array", inside)
            work.extend(
                (begin, stop, depth + 1, (path, step), inside) for begin, stop, step in reversed(children)
            )
        if isinstance(target, dict):
            assert path is not None
            target[path[1]] = decoded
        else:
            target.append(decoded)
    return root[0]


def _opened(
    value: bytes, position: int, end: int, budget: Budget, path: Path
) -> tuple[int, int, int, list[int], int, int]:
    """Return count, ids, id width, offsets, and where the children begin and end, of a container."""
    header = value[position]
    is_object = header & 3 == _OBJECT
    count_width = 4 if header >> (6 if is_object else 4) & 1 else 1
    width = (header >> 2 & 3) + 1
    id_width = (header >> 4 & 3) + 1 if is_object else 0
    count = primitives.unsigned(value, position + 1, count_width, end, path)
    ids = position + 1 + count_width
    offsets = ids + count * id_width
    data = offsets + (count + 1) * width
    check_room("the offsets of a container pass the end", data - position, end - position, path, position)
    budget.nodes -= count
    if budget.nodes < 0:
        raise too_much("values", path, position)
    table = [primitives.little(value, offsets + index * width, width) for index in range(count + 1)]
    stop = data + table[-1]
    check_room("the children of a container pass its end", stop - position, end - position, path, position)
    return count, ids, id_width, table, data, stop


def _fields(
    value: bytes, position: int, end: int, names: tuple[str, ...], budget: Budget, path: Path
) -> list[_Child]:
    count, ids, id_width, table, data, stop = _opened(value, position, end, budget, path)
    children: list[_Child] = []
    seen: set[str] = set()
    for index in range(count):
        id_ = primitives.little(value, ids + index * id_width, id_width)
        if id_ >= len(names):
            raise InvalidBody(
                "a field's id is not in the metadata",
                expected=f"below {len(names)}",
                found=id_,
                where=at(path, position),
            )
        name = names[id_]
        if name in seen:
            raise InvalidBody("an object has a key twice", found=repr(name), where=at(path, position))
        seen.add(name)
        children.append((_child(data, stop, table[index], (path, name)), stop, name))
    return children


def _elements(value: bytes, position: int, end: int, budget: Budget, path: Path) -> list[_Child]:
    count, _, _, table, data, stop = _opened(value, position, end, budget, path)
    return [(_child(data, stop, table[index], (path, index)), stop, index) for index in range(count)]


def _child(data: int, stop: int, offset: int, path: Path) -> int:
    if data + offset >= stop:
        raise InvalidBody(
            "a child begins behind the end of its container",
            expected=f"an offset below {stop - data}",
            found=offset,
            where=at(path, data),
        )
    return data + offset


def decode_names(metadata: bytes) -> tuple[str, ...]:
    """Return the names of a metadata in the order of their ids, duplicates included: its flag "sorted and
    unique" may lie. Bytes behind its end are left alone.
    """
    if not metadata:
        raise Truncated("a Variant's metadata are empty", expected="at least 3 bytes", where="metadata")
    header = metadata[0]
    if header & 0x0F != 1:
        raise InvalidBody(
            "a Variant's metadata have another version", expected=1, found=header & 0x0F, where="metadata"
        )
    width = (header >> 6) + 1
    first = 1 + width
    if first > len(metadata):
        raise Truncated(
            "the size of a Variant's metadata is cut", expected=f"{width} bytes", where="metadata"
        )
    count = primitives.little(metadata, 1, width)
    start = first + (count + 1) * width
    if start > len(metadata):
        raise Truncated(
            "a Variant's metadata end within their offsets",
            expected=f"{start} bytes",
            found=len(metadata),
            where="metadata",
        )
    offsets = [primitives.little(metadata, first + index * width, width) for index in range(count + 1)]
    if offsets[0] != 0:
        raise InvalidBody(
            "the first name of a Variant's metadata begins late",
            expected=0,
            found=offsets[0],
            where="metadata",
        )
    for index, (begin, end) in enumerate(itertools.pairwise(offsets)):
        if end < begin:
            where = f"metadata, name {index}"
            raise InvalidBody(
                "a name ends before it begins", expected=f"at least {begin}", found=end, where=where
            )
    if offsets[-1] > len(metadata) - start:
        raise Truncated(
            "a Variant's metadata end within their names",
            expected=f"{offsets[-1]} bytes of names",
            found=len(metadata) - start,
            where="metadata",
        )
    names: list[str] = []
    for begin, end in itertools.pairwise(offsets):
        try:
            names.append(metadata[start + begin : start + end].decode())
        except UnicodeDecodeError as error:
            where = f"metadata, name {len(names)}"
            raise InvalidBody("a key is not UTF-8", found=error.reason, where=where) from error
    return tuple(names)
