"""Values by path as columns of an Arrow type, and the names of their types."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn, overload

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch, Column
from bowstring.columnar.layout import Layout
from bowstring.columnar.one_column import one_column
from bowstring.errors import InvalidBody, InvalidData, LimitExceeded, Unsupported, UsageError
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch
from bowstring.kernels.variant.slots import name_kinds
from bowstring.limits import DEFAULT_LIMITS, Limits, limits_or_default
from bowstring.variant import column as columns
from bowstring.variant.cast import Elements, Target, target_of
from bowstring.variant.codec.primitives import PRIMITIVES
from bowstring.variant.gather import gather
from bowstring.variant.nested import Parts, Source
from bowstring.variant.path import AnyStep, Path, divided, parse_path, single_path
from bowstring.variant.reference import type_named
from bowstring.variant.shredded.get import ShreddedPaths
from bowstring.variant.shredded.layout import open_shredded
from bowstring.variant.status import Losses, Status, counted, first_error, status_column
from bowstring.variant.walk import Number, Read, extract, inline_number, locate

if TYPE_CHECKING:
    from bowstring.variant.column import VariantColumn
    from bowstring.variant.walk import Located

OnError = Literal["null", "raise"]
Cast = Literal["number", "exact", "spark", "lenient"]
_CASTS: Final = {"number": "number", "exact": "exact", "spark": "spark", "lenient": "spark"}
_ADVICE: Final = {
    "number": 'cast="lenient" converts what can be converted, and ',
    "exact": 'cast="number" makes numbers of one class those of another, ',
    "spark": "",
}
_ERRORS: Final = {
    Status.MALFORMED: InvalidBody,
    Status.UNSUPPORTED: Unsupported,
    Status.TOO_DEEP: LimitExceeded,
}

KINDS: Final = ("null", "boolean", *PRIMITIVES[3:], "object", "array")
"""The names of all types, as :func:`type_of` gives them."""


@overload
def get(
    column: Any,
    path: str | Sequence[AnyStep],
    type: Any,
    *,
    cast: Cast = "number",
    on_error: OnError = "null",
    with_status: Literal[False] = False,
    plain: bool = False,
    limits: Limits | None = None,
) -> Column: ...
@overload
def get(
    column: Any,
    path: str | Sequence[AnyStep],
    type: Any,
    *,
    cast: Cast = "number",
    on_error: OnError = "null",
    with_status: Literal[True],
    plain: bool = False,
    limits: Limits | None = None,
) -> Batch: ...
@overload
def get(
    column: Any,
    path: str | Sequence[AnyStep],
    type: Any,
    *,
    cast: Cast = "number",
    on_error: OnError = "null",
    with_status: bool,
    plain: bool = False,
    limits: Limits | None = None,
) -> Column | Batch: ...
def get(
    column: Any,
    path: str | Sequence[AnyStep],
    type: Any,  # noqa: A002  pyarrow's name for it
    *,
    cast: Cast = "number",
    on_error: OnError = "null",
    with_status: bool = False,
    plain: bool = False,
    limits: Limits | None = None,
) -> Column | Batch:
    r"""Return the values at a path, cast to an Arrow type.

    Parameters
    ----------
    column
        A Variant column: see :func:`bowstring.variant.open_column`. It stays where it is, and so does the result.
        Of a shredded column only the columns on the path are read; a typed column of the type that is asked for
        is returned as a view where no row has a ``value`` beside it.
    path
        Such as ``$.user.tags[0]``; see :func:`bowstring.variant.parse_path`. ``[-1]`` is the last element. ``[*]``
        is each: the result is a list, and a list of lists where there are two. An element without the rest of the
        path is a null in it; a row without an array there is null.
    type : pyarrow.DataType or str
        Or the name of one, such as ``"int64"``, ``"decimal(10, 2)"``, ``"timestamp[us, UTC]"``, ``"list<string>"``
        or ``"variant"``; behind ``[*]``, that of the elements.

        null, bool, integers, floats, decimals, dates, times, timestamps (those with a time zone are another class
        than those without), strings and binary (also large, and views), binary of one length, uuid, or
        ``bowstring.variant.type()`` for the value below the path as it is. ``pa.null()`` is what
        :func:`~bowstring.variant.schema_of` gives where there is nothing but nulls: any other value does not match.

        Arrays become lists of any kind of these types (of a fixed size where they have as many elements), objects
        become structs by the names of their fields, and maps of string: to any depth. Variants inside of others
        have their metadata as a dictionary.
    cast
        ``number``: numbers of all classes become each other, and all other values what is of their own class.
        Whole numbers take what is integral and in range, decimals what needs no more digits than they have: a float
        counts as its shortest text, so ``1e2`` is 100. Floats take the nearest number, ties to even; beyond the
        largest finite one it is an ``OVERFLOW``, below the least one zero. Times take other units, where nothing is
        lost. Text and booleans are no numbers.

        ``exact``: a value becomes what is of its own class, where nothing is lost. Whole numbers and decimals
        become each other and no floats, floats no other numbers, and ``float`` becomes float16.

        ``lenient``, or ``spark``: as Spark 4.3's ``try_variant_get`` with UTC as the time zone of the session, for
        the types that Spark has. Numbers become integers by cutting their fraction and decimals by rounding it half
        up; text is read as what is asked for, and everything becomes text. What Spark gives NULL for is null; times
        and nanoseconds, which Spark does not read, have the status ``UNSUPPORTED``. Text of a time without a date
        is one of today, as of this call. Binary that is not UTF-8 becomes no text. ``pa.null()``, which Spark does
        not take here, gives nulls.

        Spark's own results depend on its Java; those here are of Java 19 and later. Java 17 and 18 write some
        doubles with more digits than are needed, and Spark makes text and decimals of these: 1e23 is ``1.0E23`` and
        the decimal 100000000000000000000000 here, ``9.999999999999999E22`` and 99999999999999990000000 there.

        Time zones by name, such as ``Europe/Berlin``, are those of Python's :mod:`zoneinfo`: the database of the
        system, else the package ``tzdata`` (``UNSUPPORTED`` where there is neither). Java has a database of its
        own, so instants may differ where its version is another one, and for times before 1970.
    on_error
        What becomes of a value that is malformed or cannot be cast: a null, or an error for the call. SQL NULL,
        missing and Variant null give null in any case; as a Variant, a Variant null is a value.

        In a list, struct or map, it is the child that becomes null; what holds it stays a value, whose row has
        the largest status of its children that is an error. Fields that are missing are nulls without an error.
    with_status
        Return a Batch of the column and of ``status``, one :class:`~bowstring.variant.Status` for each row.
    plain
        Take a struct that is not marked as a Variant.
    limits
        ``extracted_bytes`` bounds each column. Children that share their bytes, and so take more than what holds
        them, are ``TOO_DEEP``.

    Returns
    -------
    Column
        Named as the path is written; a Batch with `with_status`.

    Warns
    -----
    UserWarning
        Values that are there became null, in lists, structs and maps too: how many of how many, and a row with one.
        One warning for a call; none with `with_status` or ``on_error="raise"``.

    Raises
    ------
    UsageError
        No Variant column, no path, or no type.
    Unsupported
        No Variant value becomes the type, or what is in it may not be null.
    LimitExceeded
        The result would be larger than the limits, or than its offsets can say.
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
    >>> get(events, "$.a", "float64", plain=True).values.tolist()
    [42.0]
    >>> get(events, "$", pa.map_(pa.string(), pa.string()), cast="lenient", plain=True).to_arrow().to_pylist()
    [[('a', '42')]]
    >>> from bowstring.variant.json.read import from_json
    >>> orders = from_json(['{"items": [{"price": 5}, {"price": 7}]}'])
    >>> (
    ...     get(orders, "$.items[*].price", "int64").to_pylist(),
    ...     get(orders, "$.items[-1].price", "int8").to_pylist(),
    ... )
    ([[5, 7]], [7])
    """
    name = path if isinstance(path, str) else _name_of(path)
    status = "status" if with_status else ""
    wanted = {name: (path, type)}
    batch = _batch_of(column, wanted, cast, on_error, status, plain=plain, limits=limits)
    return batch if with_status else batch[0]


def get_many(
    column: Any,
    wanted: Mapping[str, tuple[str | Sequence[AnyStep], Any]],
    *,
    cast: Cast = "number",
    on_error: OnError = "null",
    with_status: bool = False,
    plain: bool = False,
    limits: Limits | None = None,
) -> Batch:
    r"""Return the values at several paths: each row is walked once for all of them.

    Parameters
    ----------
    column, cast, on_error, plain, limits
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

    Warns
    -----
    UserWarning
        As for :func:`get`: one warning for all columns.

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
    given: Any = wanted
    if not (isinstance(given, Mapping) and given) or not all(
        isinstance(each, tuple | list) and len(each) == 2 for each in given.values()
    ):
        raise UsageError("no paths to get", expected="a mapping of names to (path, type)", found=repr(wanted))
    if (
        with_status
        and (twice := next((name for name in wanted if f"{name}.status" in wanted), None)) is not None
    ):
        raise UsageError(
            "a column and a status of one name",
            found=repr(f"{twice}.status"),
            hint=f"Get what is at {wanted[f'{twice}.status'][0]!r} under another name.",
        )
    status = "{}.status" if with_status else ""
    return _batch_of(column, wanted, cast, on_error, status, plain=plain, limits=limits)


class _Wanted(NamedTuple):
    """What is wanted at a path: the steps before the first ``[*]``, and what is made of the value there."""

    path: Path
    type: pa.DataType
    target: Target
    number: Number | None
    """What the walk itself reads there."""


@functools.lru_cache(256)
def _wanted(path: str | Sequence[AnyStep], type_: Any, cast: str, limits: Limits) -> _Wanted:
    type_ = type_named(type_)
    head, *rest = divided(parse_path(path))
    _check_shape(type_, limits)
    target = target_of(type_, cast)
    for inside in reversed(rest):
        type_ = pa.list_(type_)
        target = Elements(target, path=inside)
    if rest:
        _check_shape(type_, limits)
    return _Wanted(head, type_, target, inline_number(target))


def _check_shape(type_: Any, limits: Limits) -> None:
    """Check that a type is not deeper, and not wider, than a batch may be, whatever the limits are."""
    if isinstance(type_, pa.DataType) and type_.num_fields:
        depth = min(limits.depth, DEFAULT_LIMITS.depth)
        columns = min(limits.columns, DEFAULT_LIMITS.columns)
        Layout.of(pa.schema([pa.field("", type_)]), limits=limits.replace(depth=depth, columns=columns))


def _batch_of(
    column: Any,
    pairs: Mapping[str, tuple[str | Sequence[AnyStep], Any]],
    cast: Cast,
    on_error: OnError,
    status: str,
    *,
    plain: bool,
    limits: Limits | None,
) -> Batch:
    """Return the values at paths as columns, each with its statuses behind it where `status` gives these a name."""
    limits = limits_or_default(limits)
    if cast not in _CASTS:
        raise UsageError("no way to cast", expected=", ".join(map(repr, _CASTS)), found=repr(cast))
    if on_error not in ("null", "raise"):
        raise UsageError("no way to treat errors", expected="null or raise", found=repr(on_error))
    rule = _CASTS[cast]
    wanted = {}
    for name, (path, type_) in pairs.items():
        is_flat = isinstance(type_, pa.DataType) and not type_.num_fields
        is_known = isinstance(type_, str) or (is_flat and not isinstance(type_, pa.BaseExtensionType))
        settle = _wanted if is_known and isinstance(path, str) else _wanted.__wrapped__
        wanted[name] = settle(path, type_, rule, limits)
    source = one_column(column, "variant")
    columns.check_mark(source, plain=plain)
    parts = _shredded_parts if columns.is_shredded(source) else _parts
    with source.device.use():
        outputs: list[columns.Gathered] = []
        losses: Losses | None = None
        results = parts(source, wanted, limits, with_status=bool(status) or on_error == "raise")
        for name, (gathered, statuses, inside) in zip(wanted, results, strict=True):
            outputs.append(gathered)
            if statuses is not None and (not status or on_error == "raise"):
                error = first_error(statuses, source.device)
                if error is not None and on_error == "raise":
                    _raise(source, statuses, error, name, wanted[name].type)
                elif error is not None:
                    losses = losses or Losses()
                    _count(source, error, inside, name, wanted[name], losses)
            if status:
                outputs.append(status_column(status.format(name), statuses))
        if losses:
            losses.warn(f"{_ADVICE[rule]}schema_of() of the values there gives their type.")
        return columns.batch_of(outputs, source)


def _parts(
    column: Column, wanted: Mapping[str, _Wanted], limits: Limits, *, with_status: bool
) -> Iterable[tuple[columns.Gathered, Any, Parts]]:
    """Yield each wanted column, its statuses (where all are OK, if they are asked for), and those of its parts."""
    source = Source(columns.opened_of(column), limits, parts=Parts([], []))
    paths = [(each.path, each.number) for each in wanted.values()]
    located_at_paths = extract(source.opened, source.dictionary, paths)
    for located, (name, each) in zip(located_at_paths, wanted.items(), strict=True):
        source.name, source.parts = name, Parts([], [])
        gathered = gather(source, located, each.type, each.target)
        is_complete = isinstance(located, Read) and located.complete and not with_status
        yield gathered, None if is_complete else located.statuses, source.parts


def _shredded_parts(
    column: Column, wanted: Mapping[str, _Wanted], limits: Limits, *, with_status: bool
) -> Iterable[tuple[columns.Gathered, Any, Parts]]:
    """Yield what :func:`_parts` does of a shredded column; statuses of views where they are asked for."""
    paths = ShreddedPaths(open_shredded(column), limits)
    for name, each in wanted.items():
        yield paths.gathered(each.path, name, each.type, each.target, with_status=with_status)


def _name_of(path: str | Sequence[AnyStep]) -> str:
    return path if isinstance(path, str) else repr(list(parse_path(path)))


def _raise(column: Column, statuses: Any, error: tuple[int, Status], name: str, type_: Any) -> NoReturn:
    row, status = error
    bad = statuses > np.uint8(Status.VARIANT_NULL)
    count = int(column.device.to_host(bad.sum(keepdims=True, dtype=np.int64))[0])
    raise _ERRORS.get(status, InvalidData)(
        f"a value at {name} cannot be read as {type_}",
        found=f"{status.name} in {count} rows",
        where=f"row {row}",
        hint='on_error="null" gives nulls, with_status=True says of what kind each is.',
    )


def _count(
    column: Column, error: tuple[int, Status], inside: Parts, name: str, wanted: _Wanted, losses: Losses
) -> None:
    row, status = error
    example = f"in row {row}"
    if not pa.types.is_nested(wanted.type):
        example = f"row {row}, which is {status.name.lower()}"
        if status in (Status.TYPE_MISMATCH, Status.OVERFLOW):
            kinds = type_of(column.as_batch().slice(row, 1)[0], wanted.path, plain=True)
            kind = kinds.to_arrow()[0].as_py()
            example = f"row {row}, which holds {'an' if kind[0] in 'aio' else 'a'} {kind}"
    what = f"at {name} cannot be read as {wanted.type} and became null"
    losses.add(what, *counted(column.device, *inside), example)


def type_of(column: Any, path: str | Sequence[AnyStep] = "$", *, plain: bool = False) -> Column:
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
    opened, located = located_at(column, path, "type_of", plain=plain)
    device, rows = opened.column.device, len(located.statuses)
    with device.use():
        kinds = device.xp.empty(rows, np.int8)
        launch(name_kinds, rows, opened.value.data, located.positions, located.statuses, kinds)
        texts = [kind.encode() for kind in KINDS]
        data: Any = np.frombuffer(b"".join(texts), np.uint8)
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        names = columns.values_batch(pa.string(), device.xp.asarray(ends), device.xp.asarray(data), device)
        field = pa.field(_name_of(path), pa.dictionary(pa.int8(), pa.string()))
        arrays = [bitmap.packed(kinds >= np.int8(0)), kinds]
        gathered = columns.Gathered(field, [(rows, -1)], arrays, dictionaries=(names,))
        return columns.batch_of([gathered], opened.column)[0]


def located_at(
    column: Any, path: str | Sequence[AnyStep], call: str, *, plain: bool
) -> tuple[VariantColumn, Located]:
    """Return a column, shredded or not, and where the one value at a path is in each row."""
    steps = single_path(path, call)
    found = one_column(column, "variant")
    columns.check_mark(found, plain=plain)
    with found.device.use():
        if columns.is_shredded(found):
            return ShreddedPaths(open_shredded(found), DEFAULT_LIMITS).located(steps)
        opened = columns.opened_of(found)
        [located] = locate(opened, columns.dictionary_of(opened), [steps])
        return opened, located
