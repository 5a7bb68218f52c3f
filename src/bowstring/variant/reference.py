"""A path into a Variant column as a name: what filters of pyarrow's can refer to."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from bowstring.errors import UsageError
from bowstring.variant.path import Path, Step, parse_path

__all__ = ["Reference", "path", "reference_of"]

_PREFIX: Final = "bowstring.variant.path:"


class Reference(NamedTuple):
    """What a name refers to.

    Attributes
    ----------
    column
        A column.
    path
        The steps below it.
    type : pyarrow.DataType
        What the values are read as.
    """

    column: str
    path: Path
    type: pa.DataType


def path(column: str, path: str | Sequence[Step], type: Any) -> Any:  # noqa: A002  as in get()
    """Return the values at a path of a Variant column as an expression, for the filters of ``bow.parquet.read``.

    Parameters
    ----------
    column
        The name of the column.
    path
        As :func:`bowstring.variant.get` takes it.
    type : pyarrow.DataType
        What the values are read as, exactly: values of another class, such as strings for ``pa.int64()``, are null.

    Returns
    -------
    pyarrow.compute.Expression
        To compare and to combine with others, or to put in the place of a name: ``(path(…), ">", 3)``.

    Raises
    ------
    UsageError
        No name, no path, or no type.

    Examples
    --------
    >>> cheap = path("event", "$.price", pa.int64()) < 3
    >>> type(cheap).__name__
    'Expression'
    """
    import pyarrow.compute as pc

    if not all((isinstance(column, str), isinstance(type, pa.DataType))):
        raise UsageError(
            "a path needs the name of a column and a type",
            expected="a string and a pyarrow.DataType",
            found=f"{column!r}, {type!r}"[:200],
        )
    stored = base64.b64encode(pa.schema([pa.field("", type)]).serialize()).decode()
    return pc.field(_PREFIX + json.dumps([column, parse_path(path), stored]))


def reference_of(name: str) -> Reference | None:
    """Return what a name that :func:`path` made refers to; ``None`` for any other name."""
    if not name.startswith(_PREFIX):
        return None
    column, steps, stored = json.loads(name[len(_PREFIX) :])
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
    return Reference(column, tuple(steps), schema.field(0).type)
