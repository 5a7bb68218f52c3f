"""The types of the values at a path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.column import Column
from bowstring.columnar.dictionary import Dictionary
from bowstring.columnar.layout import Layout
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch
from bowstring.kernels.variant.bytes import name_kinds
from bowstring.variant.codec.decode_primitives import PRIMITIVES
from bowstring.variant.column import open_column
from bowstring.variant.path import Step, parse_path
from bowstring.variant.result import buffer_or_none
from bowstring.variant.walk import locate

if TYPE_CHECKING:
    from bowstring.memory import Device

__all__ = ["KINDS", "type_of"]

KINDS: Final = ("null", "boolean", *PRIMITIVES[3:], "object", "array")
"""The names of all types, as :func:`type_of` gives them."""


def type_of(column: Any, path: str | Sequence[Step] = "$", *, plain: bool = False) -> Column:
    r"""Return the names of the types of the values at a path, as :data:`KINDS` spells them.

    Parameters
    ----------
    column, path, plain
        As for :func:`bowstring.variant.get`.

    Returns
    -------
    Column
        A dictionary of int8 and strings; null for SQL NULL, missing, and what is malformed or unsupported.

    Raises
    ------
    UsageError, Unsupported
        As for :func:`bowstring.variant.get`.

    Examples
    --------
    >>> from bowstring.variant import type as variant_type
    >>> rows = [{"metadata": b"\x01\x01\x00\x01a", "value": bytes([2, 1, 0, 0, 2, 12, 42])}]  # {"a": 42}
    >>> events = pa.record_batch({"event": pa.array(rows, variant_type().storage_type)})
    >>> (
    ...     type_of(events, plain=True).to_arrow().to_pylist(),
    ...     type_of(events, "a", plain=True).to_arrow().to_pylist(),
    ... )
    (['object'], ['int8'])
    """
    steps = parse_path(path)
    opened = open_column(column, plain=plain)
    device, rows = opened.column.device, opened.rows
    with device.use():
        [places] = locate(opened, [steps])
        kinds = device.xp.empty(rows, np.int8)
        launch(name_kinds, rows, opened.value.data, places.places, places.statuses, kinds)
        name = path if isinstance(path, str) else repr(list(steps))
        layout = Layout.of(pa.schema([pa.field(name, pa.dictionary(pa.int8(), pa.string()))]))
        return Batch.from_parts(
            layout,
            rows,
            np.array([(rows, -1)], np.int64),
            [buffer_or_none(bitmap.packed(kinds >= np.int8(0)), device), buffer_or_none(kinds, device)],
            dictionaries={0: Dictionary(0, _names(device))},
            device=device,
        )[0]


def _names(device: Device) -> Batch:
    texts = [kind.encode() for kind in KINDS]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    data = np.frombuffer(b"".join(texts), np.uint8)
    return Batch.from_parts(
        Layout.of(pa.schema([pa.field("values", pa.string())])),
        len(KINDS),
        np.array([(len(KINDS), 0)], np.int64),
        [None, *(buffer_or_none(device.xp.asarray(each), device) for each in (ends, data))],
        device=device,
    )
