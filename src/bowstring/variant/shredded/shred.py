"""Variant columns taken apart into typed columns, and what does not fit these into ``value``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from bowstring.columnar.one_column import one_column
from bowstring.errors import InvalidBody, LimitExceeded, Unsupported, UsageError
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch
from bowstring.kernels.variant import shred as kernels
from bowstring.kernels.variant.slots import VALUE
from bowstring.limits import DEFAULT_LIMITS, Limits, limits_or_default
from bowstring.variant import column as columns
from bowstring.variant.cast import target_of
from bowstring.variant.gather import gather_at
from bowstring.variant.nested import Source, bytes_at, elements, sizes_at
from bowstring.variant.shredded.encode import Names
from bowstring.variant.shredded.schema import MOST_COLUMNS, Inference, checked_schema, is_untyped, typed_type
from bowstring.variant.shredded.unshred import RULES, unshredded
from bowstring.variant.status import Status, any_of, first_error, raise_error
from bowstring.variant.walk import Located, locate

if TYPE_CHECKING:
    from bowstring.columnar.batch import Column


_OK, _MISSING = np.uint8(Status.OK), np.uint8(Status.MISSING)
_VARIANT_NULL: Final = np.uint8(Status.VARIANT_NULL)
_LISTS: Final = (pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST)
# Where the fields of objects lie, while they are taken apart: so many are found in one pass.
_PASS_BYTES: Final = 256 << 20
_FIELD_BYTES: Final = 9


def shred(
    column: Any,
    schema: pa.DataType | Literal["infer"] = "infer",
    *,
    max_columns: int = MOST_COLUMNS,
    plain: bool = False,
    limits: Limits | None = None,
) -> Column:
    r"""Return a Variant column shredded: values of some types in typed columns, all others in ``value``.

    The values are the same: :func:`bowstring.variant.unshred` of the result is equal to the column. The metadata
    are those of the column, not copied. The specification: *Variant Shredding*.

    Parameters
    ----------
    column
        A Variant column: see :func:`bowstring.variant.open_column`. It stays where it is, and so does the result.
        One that is shredded already is shredded anew.
    schema
        The type of the values: structs for objects (fields that are not named stay in ``value``), lists for
        arrays, else bool, int8 to int64, float, double, decimals of at most 38 digits, date32, time64[us],
        timestamps in us or ns, string, binary, uuid; ``bowstring.variant.type()`` for a field that shall have a
        column of Variant values. A value is in a typed column where the type holds it without loss; whole numbers
        and decimals become each other, and timestamps take the other unit.

        ``"infer"`` finds the types in the column, of up to 16,384 rows spread over it: fields that 10 % of the rows
        have, as the kind of more than half of their values. Whole numbers become int64, decimals those of 18 or 38
        digits that hold all of them, and numbers of both kinds decimals. A column that has no such types is
        returned as it is.
    max_columns
        Most columns that are inferred; those that most rows have are kept.
    plain
        Take a struct that is not marked as a Variant.
    limits
        ``extracted_bytes`` bounds each typed column.

    Returns
    -------
    Column
        A struct of ``metadata``, ``value`` and ``typed_value``, marked as a Variant.

    Raises
    ------
    UsageError
        No Variant column, or no schema.
    Unsupported
        The specification has no typed column of a type; or a value is of a type that is not known.
    InvalidBody, Truncated
        A value is malformed, has a name twice, or its fields share their bytes; the error names the row.
    LimitExceeded
        A typed column is larger than the limits or than 2 GiB, or the schema too deep.

    Examples
    --------
    >>> import bowstring as bow, pyarrow as pa
    >>> column = bow.variant.from_json(['{"a": 1, "b": 2}', '{"a": "x"}', "[3]"])
    >>> shredded = shred(column, pa.struct({"a": pa.int64()}))
    >>> shredded.child("typed_value").child("a").child("typed_value").to_arrow().to_pylist()
    [1, None, None]
    >>> bow.variant.to_python(shredded)
    [{'a': 1, 'b': 2}, {'a': 'x'}, [3]]
    """
    limits = limits_or_default(limits)
    if isinstance(schema, str) and schema != "infer":
        raise UsageError(
            "no schema to shred by", expected='a pyarrow.DataType or "infer"', found=repr(schema)
        )
    if max_columns < 1:
        raise UsageError("a column is shredded into columns", expected="1 or more", found=repr(max_columns))
    whole = one_column(column, "variant")
    columns.check_mark(whole, plain=plain)
    wanted = None if isinstance(schema, str) else checked_schema(schema, whole.name)
    with whole.device.use():
        if columns.is_shredded(whole):
            whole = unshredded(whole, strict=True, limits=limits)
        source, located = _opened(whole, limits)
        if wanted is None:
            wanted = Inference(source, max_columns).schema(located)
        if is_untyped(wanted):
            return whole
        parts = _Shredder(source).parts(located, source.dictionary.indices, wanted)
        top = columns.part_of(whole)
        gathered = columns.with_metadata(whole, whole.field, top.nodes[0], top.arrays[0], parts)
        return columns.batch_of([gathered], whole)[0]


def inferred_schema(
    column: Any, max_columns: int = MOST_COLUMNS, *, limits: Limits = DEFAULT_LIMITS
) -> pa.DataType:
    """Return the schema by which :func:`shred` shreds a column that is not shredded."""
    whole = one_column(column, "variant")
    with whole.device.use():
        source, located = _opened(whole, limits)
        return Inference(source, max_columns).schema(located)


def _opened(column: Column, limits: Limits) -> tuple[Source, Located]:
    """Return a column that is not shredded, and where its values lie."""
    source = Source(columns.opened_of(column), limits, column.name)
    [located] = locate(source.opened, source.dictionary, [()])
    error = first_error(located.statuses, column.device)
    if error is not None:
        raise_error(source.opened, *error, limits)
    return source, located


class _Objects(NamedTuple):
    """Objects, some of whose fields become columns."""

    flags: Any  # bool: which values are objects
    numbers: Any  # int32: for each name of each metadata, which of the fields it is
    shapes: Any  # uint64: how many fields are left, and the widths of their ids and offsets
    sizes: Any  # int64: bytes of an object of the fields that are left


class _Shredder:
    """Takes values apart, group by group from the whole down."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._device = source.device
        self._names = Names(source.device, source.dictionary)

    def parts(self, located: Located, groups: Any, schema: pa.DataType) -> list[columns.Gathered]:
        """Return the columns of a group: the values that stay, and the typed ones unless the schema has none.
        `groups` index the metadata of each value.
        """
        if is_untyped(schema):
            return [self._values(located, groups)]
        if schema.id == pa.lib.Type_STRUCT:
            return self._fields(located, groups, schema)
        at = Located(located.positions, located.statuses.copy())
        field = pa.field("typed_value", typed_type(schema))
        if schema.id in _LISTS:
            large = schema.id == pa.lib.Type_LARGE_LIST
            offsets, inside, below = elements(self._source, at, groups, large=large)
            self._check(at.statuses)
            self._check(inside.statuses)
            item = self._group(field.type.value_field, inside, below, schema.value_type)
            node, validity = self._validity(at.statuses == _OK)
            typed = columns.holding(
                field, node, [validity, offsets if large else offsets.astype(np.int32)], [item]
            )
        else:
            typed = gather_at(self._source, at, groups, field, target_of(schema, "exact"))
        return [self._values(located, groups, at.statuses == _OK), typed]

    def _group(self, field: pa.Field, located: Located, groups: Any, schema: pa.DataType) -> columns.Gathered:
        return columns.holding(field, (len(located.statuses), 0), [None], self.parts(located, groups, schema))

    def _fields(self, located: Located, groups: Any, schema: pa.StructType) -> list[columns.Gathered]:
        field = pa.field("typed_value", typed_type(schema))
        xp, rows, known = self._device.xp, len(located.statuses), self._names
        numbers, scratch = (xp.full(len(known.ranks), -1, np.int32) for _ in range(2))
        names = known.ids(schema.names), schema.num_fields
        launch(
            kernels.map_fields,
            len(known.dictionary.marks),
            known.bases,
            known.ranks,
            *names,
            scratch,
            numbers,
        )
        flags, shapes, sizes = xp.zeros(rows, np.bool_), xp.zeros(rows, np.uint64), xp.zeros(rows, np.int64)
        left = _Objects(flags, numbers, shapes, sizes)
        children = []
        # Several fields are found in one pass over the objects.
        at_once = max(1, _PASS_BYTES // (_FIELD_BYTES * max(rows, 1)))
        for first in range(0, schema.num_fields, at_once):
            count = min(at_once, schema.num_fields - first)
            for position, inside in enumerate(self._located(located, groups, left, first, count), first):
                children.append(self._group(field.type[position], inside, groups, schema[position].type))
        node, validity = self._validity(left.flags)
        typed = columns.holding(field, node, [validity], children)
        return [self._values(located, groups, left.flags, left), typed]

    def _located(
        self, located: Located, groups: Any, objects: _Objects, first: int, count: int
    ) -> list[Located]:
        """Return where some fields lie; which values are objects, and what is left of them, is written."""
        xp, rows = self._device.xp, len(located.statuses)
        places = xp.zeros(count * rows, np.uint64), xp.full(count * rows, _MISSING, np.uint8)
        values = self._source.data, located.positions, located.statuses
        names = groups, self._names.bases, objects.numbers
        written = objects.flags.view(np.uint8), objects.shapes, objects.sizes
        launch(kernels.split_objects, rows, *values, *names, first, rows, *places, *written)
        wrong = xp.flatnonzero(objects.sizes < np.int64(0))
        if len(wrong):
            code = int(self._device.to_host(objects.sizes[wrong[:1]])[0])
            kind = Unsupported if code == int(kernels.UNSIZED) else InvalidBody
            raise kind(
                f"a value of a Variant column cannot be shredded: {RULES[code]}",
                found=f"{len(wrong)} such objects",
                where=self._source.name,
            )
        return [Located(*(each[k * rows : (k + 1) * rows] for each in places)) for k in range(count)]

    def _values(
        self, located: Located, groups: Any, typed: Any | None = None, objects: _Objects | None = None
    ) -> columns.Gathered:
        """Return the values without a typed column, and what is left of objects."""
        xp, statuses = self._device.xp, located.statuses
        rows = len(statuses)
        kept = (statuses == _OK) | (statuses == _VARIANT_NULL)
        if typed is not None:
            kept = kept & ~typed
        sizes = xp.zeros(rows, np.int64)
        alone = Located(located.positions, xp.where(kept, statuses, _MISSING).astype(np.uint8))
        if any_of(kept, self._device):
            sizes = sizes_at(self._source, alone)
            self._check(alone.statuses)
        stored = kept
        if objects is not None:
            sizes = xp.where(objects.flags, objects.sizes, sizes)
            stored = kept | (sizes > np.int64(0))
        field = pa.field("value", pa.binary())
        if not any_of(stored, self._device):
            nothing = xp.zeros((rows + 7) // 8, np.uint8), xp.zeros(rows + 1, np.int32), xp.empty(0, np.uint8)
            return columns.Gathered(field, [(rows, rows)], [*nothing])
        offsets, out = bytes_at(self._source, alone, sizes, int(VALUE), large=False)
        if objects is not None:
            taken = self._source.data, located.positions, groups, self._names.bases, objects.numbers
            launch(kernels.write_residuals, rows, *taken, objects.shapes, offsets, out)
        node, validity = self._validity(stored)
        return columns.Gathered(field, [node], [validity, offsets.astype(np.int32), out])

    def _validity(self, flags: Any) -> tuple[tuple[int, int], Any]:
        """Return the node of a column whose flags say which slots are not null, and its bitmap."""
        rows = len(flags)
        nulls = rows - int(self._device.to_host(flags.sum(keepdims=True, dtype=np.int64))[0])
        return (rows, nulls), bitmap.packed(flags) if nulls else None

    def _check(self, statuses: Any) -> None:
        """Check that no value inside others is malformed, of a type that is not known, or shares too much."""
        # A mismatch is a value of another kind.
        wrong = self._device.xp.flatnonzero(statuses > np.uint8(Status.OVERFLOW))
        if len(wrong):
            status = Status(int(self._device.to_host(statuses[wrong[:1]])[0]))
            kinds = {Status.UNSUPPORTED: Unsupported, Status.TOO_DEEP: LimitExceeded}
            raise kinds.get(status, InvalidBody)(
                "a value of a Variant column cannot be shredded", found=status.name, where=self._source.name
            )
