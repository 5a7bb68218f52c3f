"""Values out of Variant columns by path, as columns of an Arrow type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import numpy as np

from bowstring.columnar.batch import Batch
from bowstring.errors import InvalidBody, InvalidData, LimitExceeded, Unsupported, UsageError
from bowstring.variant.cast import target_of
from bowstring.variant.column import open_column
from bowstring.variant.gather import Gathered, batch_of, gather, status_column
from bowstring.variant.locate import locate
from bowstring.variant.path import Step, parse_path
from bowstring.variant.status import Status

if TYPE_CHECKING:
    from bowstring.variant.column import VariantColumn
    from bowstring.variant.locate import Places

__all__ = ["OnError", "get", "get_many"]

OnError = Literal["null", "raise"]
_ERRORS: Final = {
    Status.MALFORMED: InvalidBody,
    Status.UNSUPPORTED: Unsupported,
    Status.TOO_DEEP: LimitExceeded,
}


def get(
    column: Any,
    path: str | Sequence[Step],
    type: Any,  # noqa: A002  pyarrow's name for it
    *,
    on_error: OnError = "null",
    with_status: bool = False,
    plain: bool = False,
) -> Any:
    r"""Return the values at a path, cast without any loss.

    Parameters
    ----------
    column
        A Variant column: see :func:`bowstring.variant.open_column`. It stays where it is, and so does the result.
    path
        Such as ``$.user.tags[0]``; see :func:`bowstring.variant.parse_path`.
    type : pyarrow.DataType
        bool, signed integers, floats, decimals of at most 38 digits, dates, times, timestamps (those with a
        time zone are another class than those without), (large) string and binary, binary of one length, uuid,
        or ``bowstring.variant.type()`` for the value below the path as it is.

        Whole numbers and decimals become each other, and times take other units, where nothing is lost.
    on_error
        What becomes of a value that is malformed or cannot be cast: a null, or an error for the call. SQL NULL,
        missing and Variant null give null in any case; as a Variant, a Variant null is a value.
    with_status
        Return a Batch of the column and of ``status``, one :class:`~bowstring.variant.Status` for each row.
    plain
        Take a struct that is not marked as a Variant.

    Returns
    -------
    Column
        Named as the path is written; a Batch with `with_status`.

    Raises
    ------
    UsageError
        No Variant column, no path, or no type.
    Unsupported
        No Variant value becomes the type; the column is shredded.
    InvalidData, Unsupported, LimitExceeded
        With ``on_error="raise"``: names the first row.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bowstring.variant import type as variant_type
    >>> rows = [{"metadata": b"\x01\x01\x00\x01a", "value": bytes([2, 1, 0, 0, 2, 12, 42])}]  # {"a": 42}
    >>> events = pa.record_batch({"event": pa.array(rows, variant_type().storage_type)})
    >>> get(events, "$.a", pa.int64(), plain=True).values.tolist()
    [42]
    """
    _check(on_error)
    wanted = target_of(type)
    opened = open_column(column, plain=plain)
    name = path if isinstance(path, str) else repr(list(path))
    [places] = locate(opened, [parse_path(path)])
    columns = [gather(opened, places, name, type, wanted)]
    _raise_errors(opened, places, name, on_error)
    if not with_status:
        return batch_of(columns, opened)[0]
    columns.append(status_column("status", places, opened.column.device))
    return batch_of(columns, opened)


def get_many(
    column: Any,
    wanted: Mapping[str, tuple[str | Sequence[Step], Any]],
    *,
    on_error: OnError = "null",
    with_status: bool = False,
    plain: bool = False,
) -> Batch:
    r"""Return the values at several paths: each row is walked once for all of them.

    Parameters
    ----------
    column, on_error, plain
        As for :func:`get`.
    wanted
        Path and type of each column, by its name.
    with_status
        Add a column ``NAME.status`` behind each.

    Returns
    -------
    Batch
        The columns in the order of `wanted`.

    Raises
    ------
    UsageError, Unsupported, InvalidData, LimitExceeded
        As for :func:`get`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bowstring.variant import type as variant_type
    >>> rows = [{"metadata": b"\x01\x01\x00\x01a", "value": bytes([2, 1, 0, 0, 2, 12, 42])}]  # {"a": 42}
    >>> events = pa.record_batch({"event": pa.array(rows, variant_type().storage_type)})
    >>> get_many(
    ...     events, {"a": ("$.a", pa.int8()), "b": ("$.b", pa.string())}, plain=True
    ... ).to_arrow().to_pylist()
    [{'a': 42, 'b': None}]
    """
    _check(on_error)
    if not wanted:
        raise UsageError("no paths to get", expected="a mapping of names to (path, type)")
    targets = {name: target_of(type_) for name, (_, type_) in wanted.items()}
    opened = open_column(column, plain=plain)
    located = locate(opened, [parse_path(path) for path, _ in wanted.values()])
    columns: list[Gathered] = []
    for (name, (_, type_)), places in zip(wanted.items(), located, strict=True):
        columns.append(gather(opened, places, name, type_, targets[name]))
        _raise_errors(opened, places, name, on_error)
        if with_status:
            columns.append(status_column(f"{name}.status", places, opened.column.device))
    return batch_of(columns, opened)


def _check(on_error: OnError) -> None:
    if on_error not in ("null", "raise"):
        raise UsageError("no way to treat errors", expected="null or raise", found=repr(on_error))


def _raise_errors(opened: VariantColumn, places: Places, name: str, on_error: OnError) -> None:
    if on_error == "null":
        return
    device = opened.column.device
    rows = device.xp.flatnonzero(places.statuses > np.uint8(Status.VARIANT_NULL))
    if len(rows):
        row = int(device.to_host(rows[:1])[0])
        _refuse(row, Status(int(device.to_host(places.statuses[row : row + 1])[0])), len(rows), name)


def _refuse(row: int, status: Status, count: int, name: str) -> NoReturn:
    raise _ERRORS.get(status, InvalidData)(
        f"the value at {name} cannot be had",
        found=f"{status.name} in {count} rows",
        where=f"row {row}",
        hint='on_error="null" gives nulls, with_status=True says of what kind each is.',
    )
