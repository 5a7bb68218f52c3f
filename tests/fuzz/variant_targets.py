"""Fuzzing of Variants: any bytes as a value, and any bytes as JSON text, beside our decoder and Python's json."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any, Final

import pyarrow as pa

from bowstring import variant
from bowstring.errors import BowstringError
from bowstring.variant import Status
from bowstring.variant.codec.decode import decode
from tests.variant.get_columns import column_of
from tests.variant.hostile import GOOD, WANTED
from tests.variant.json_write import json_of

__all__ = ["json_text", "variant_value"]

_DIGITS: Final = 38


def variant_value(data: bytes) -> None:
    """Take a length, metadata of that length, and a value: in a column beside a good row, which stays as it is."""
    size = int.from_bytes(data[:2], "little")
    row = (data[2 : 2 + size], data[2 + size :])
    column = column_of([row, GOOD], "binary")
    statuses = variant.validate(column).values.tolist()
    variant.type_of(column)
    batch = variant.get_many(column, WANTED, with_status=True)
    batch.validate(full=True)
    assert statuses[1] == batch["field.status"].values[1] == Status.OK
    tree = None
    with contextlib.suppress(BowstringError):
        tree = decode(*row)
    if statuses[0] != Status.OK:
        with contextlib.suppress(BowstringError):
            variant.to_json(column)
            variant.equals(column, column)
        return
    assert tree is not None
    assert variant.to_json(column).to_arrow().to_pylist()[0] == json_of(tree, "plain")
    assert variant.equals(column, column).to_arrow().to_pylist() == [True, True]


def json_text(data: bytes) -> None:
    """Read JSON text: what Python's json reads, but for what we refuse, comes out as the same document."""
    wanted, refused = None, False
    try:
        wanted = json.loads(data.decode(), object_pairs_hook=_object, parse_int=_int, parse_constant=_refuse)
        json.dumps(wanted, ensure_ascii=False).encode()
        _finite(wanted)
    except (ValueError, RecursionError):
        refused = True
    try:
        column = variant.from_json(pa.array([data], pa.binary()))
    except BowstringError:
        assert refused or _deep(wanted), data
        return
    assert not refused, data
    [text] = variant.to_json(column).to_arrow().to_pylist()
    assert json.loads(text, parse_int=_int) == wanted, data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


def _int(text: str) -> int | float:
    """Return an integer, or the double that stands for one of more digits than a decimal has."""
    return int(text) if len(text.lstrip("-")) <= _DIGITS else float(text)


def _refuse(text: str) -> None:
    raise ValueError(text)


def _finite(value: Any) -> None:
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _finite(each)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("beyond the doubles")


def _deep(value: Any, levels: int = 60) -> bool:
    """Whether a document is about as deep as is allowed, or deeper."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_deep(each, levels - 1) for each in inside)
