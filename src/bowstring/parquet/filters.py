"""Filters of rows: by a box, and pyarrow's forms, with paths into Variant columns beside the columns of a file.

A filter is prepared once for the schema of a file: comparisons with numbers become ones in the column's own type.
Row groups are left out by pyarrow, where their statistics rule out every row. The rows of the others are compared
one by one, so a filter is exact whatever the statistics are.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from bowstring import geo
from bowstring.errors import BowstringError, InvalidData, UnknownColumn, UsageError, first_line
from bowstring.geo.box import as_box
from bowstring.parquet.columns import leaves_of
from bowstring.parquet.comparisons import in_column, in_variant, is_number, number_of, possible
from bowstring.parquet.conditions import COMPARISONS, Condition, condition_of, connected
from bowstring.parquet.shredded import Compared, bounds_of, typed_of
from bowstring.variant.reference import Reference, reference_of
from bowstring.variant.status import Losses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bowstring.parquet.file import OpenFile
    from bowstring.parquet.shredded import Chosen


_OPERATORS: Final = {
    "=": "equal",
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "in": "is_in",
    "not in": "is_in",
}
_FORMS: Final = "an expression, or tuples such as [('a', '>', 3)], or lists of them"
OnError = Literal["null", "raise"]


class Filter:
    """Which rows of a file are wanted: those that filters and a box leave, where both are given."""

    def __init__(self, filters: Any, bbox: Any, on_error: OnError) -> None:
        self._filters: list[RowFilter | BoxFilter] = []
        if filters is not None:
            self._filters.append(RowFilter(filters, on_error))
        if bbox is not None:
            self._filters.append(BoxFilter(bbox))

    def columns(self, schema: pa.Schema) -> list[Chosen]:
        """Return the columns that are compared, each by the name that it has in a batch for :meth:`mask`."""
        every = [each for filter_ in self._filters for each in filter_.columns(schema)]
        return list({name or column: (name, column) for name, column in every}.values())

    def row_groups(self, file: OpenFile) -> list[int]:
        return sorted(set.intersection(*(set(each.row_groups(file)) for each in self._filters)))

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        return functools.reduce(pc.and_, [each.mask(batch) for each in self._filters])

    def losses(self) -> list[str]:
        """Return the texts of warnings of what could not be compared, each once."""
        return [text for each in self._filters for text in each.losses()]


class BoxFilter:
    """Rows whose geometries have a point of their bounds in a box."""

    def __init__(self, bbox: Any) -> None:
        # bbox: a box for the only geospatial column; or boxes by the names of columns, all of which must hold
        if isinstance(bbox, Mapping) and not bbox:
            raise UsageError("bbox names no column", expected="{'a column': box}", found="an empty mapping")
        self._named = {name: as_box(box) for name, box in bbox.items()} if isinstance(bbox, Mapping) else None
        self._only = None if self._named is not None else as_box(bbox)

    def columns(self, schema: pa.Schema) -> list[Chosen]:
        return [(name, name) for name in self._boxes(schema)]

    def row_groups(self, file: OpenFile) -> list[int]:
        wanted = {leaves_of(file.leaf_paths, name)[0]: box for name, box in self._boxes(file.schema).items()}
        return [
            group
            for group in range(file.num_row_groups)
            if all(
                (there := _box_of(file, group, leaf)) is None or there.intersects(box)
                for leaf, box in wanted.items()
            )
        ]

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        masks = [
            pc.fill_null(geo.intersects_box(batch.select([name]), box).to_arrow(), fill_value=False)
            for name, box in self._boxes(batch.schema, compared=True).items()
        ]
        return functools.reduce(pc.and_, masks)

    def losses(self) -> list[str]:
        return []  # what is not a geometry is an error

    def _boxes(self, schema: pa.Schema, *, compared: bool = False) -> dict[str, geo.Box]:
        """Return the boxes by the names of the columns of a file, or of those that are compared."""
        geospatial = [field.name for field in schema if geo.type_of(field) is not None]
        if self._named is None:
            assert self._only is not None
            if len(geospatial) != 1:
                raise UsageError(
                    "a box is for one geospatial column",
                    expected="bbox={'a column': box}"
                    if geospatial
                    else "a column that is GEOMETRY or GEOGRAPHY",
                    found=f"the columns {geospatial}"[:200]
                    if geospatial
                    else f"none in {schema.names}"[:200],
                )
            return {geospatial[0]: self._only}
        for name in () if compared else self._named:
            if schema.names.count(name) != 1:
                raise UnknownColumn(
                    "bbox names no column, or several", found=name, expected=f"one of {geospatial}"[:200]
                )
            if name not in geospatial:
                raise UsageError(
                    "bbox names a column that is not geospatial",
                    found=name,
                    expected=f"one of {geospatial}"[:200],
                )
        return self._named


def _box_of(file: OpenFile, group: int, leaf: int) -> geo.Box | None:
    """Return the box of a column chunk by its statistics, if any."""
    # Geometries without a box have no coordinates, or their writer did not know it; a box of NaN says nothing.
    found = file.column_chunk(group, leaf).geo_statistics
    try:
        return None if found is None else geo.Box(*(getattr(found, side) for side in geo.Box.__slots__))
    except UsageError:
        return None


class RowFilter:
    """Which rows of a file are wanted."""

    def __init__(self, filters: Any, on_error: OnError = "null") -> None:
        # filters: an expression; or tuples of name, operator and value that all hold; or lists of these, one of
        # which holds. on_error: of a value at a path of another class than what it is compared with
        self._condition = _condition(filters)
        self._raises = on_error == "raise"
        self._leaves = list(self._condition.leaves())
        references = {name: reference_of(name) for name in self._condition.columns()}
        self._references = {name: each for name, each in references.items() if each is not None}
        self._prepared: tuple[pa.Schema, Any] | None = None
        self._others = Losses()

    def columns(self, schema: pa.Schema) -> list[Chosen]:
        chosen: dict[str, Chosen] = {}
        if any(leaf.names is None for leaf in self._leaves):
            # The expression may have columns by their position.
            chosen = {name: (None, name) for name in schema.names}
        for leaf in self._leaves:
            compared = self._compared(leaf)
            if compared is not None:
                mark = _mark(compared)
                chosen[mark] = (mark, Compared(*self._references[compared]))
                continue
            for name in leaf.columns():
                if name not in self._references and schema.names.count(name) != 1:
                    raise UnknownColumn(
                        "a filter names no column, or several",
                        found=name,
                        expected=f"one of {schema.names}"[:200],
                    )
                chosen[name] = (name, self._references.get(name, name))
        return list(chosen.values())

    def row_groups(self, file: OpenFile) -> list[int]:
        groups = list(range(file.num_row_groups))
        compared = [column for _, column in self.columns(file.schema)]
        if self._raises and self._references:
            return groups
        with _translated():
            wanted = possible(self._condition, file.schema)
            if wanted is not None:
                plain = [column for column in compared if not isinstance(column, Reference)]
                leaves = {leaf for column in plain for leaf in leaves_of(file.leaf_paths, column)}
                file.check_chunks(leaves)
                # Where bounds are shorter than values, as of text that was cut off, statistics rule out nothing.
                kept = {
                    group
                    for leaf in leaves
                    for group in np.flatnonzero(file.chunks.short_bounds(leaf)).tolist()
                }
                asked = [group for group in groups if group not in kept]
                options = ds.ParquetReadOptions(coerce_int96_timestamp_unit=file.int96)
                form = ds.ParquetFileFormat(read_options=options)
                fragment = form.make_fragment(file.statistics_source, row_groups=asked)
                left = fragment.subset(wanted, schema=file.schema).row_groups if asked else []
                groups = sorted({*kept, *(int(group.id) for group in left)})
            typed = {name: typed_of(file, each) for name, each in self._references.items()}
            if not any(typed.values()):
                return groups
            return [group for group in groups if self._may_match(file, group, typed)]

    def _may_match(self, file: OpenFile, group: int, typed: dict[str, pa.DataType | None]) -> bool:
        """Return whether statistics of typed columns leave rows that the filter could want."""
        bounds = {name: bounds_of(file, group, each, name) for name, each in self._references.items()}
        known = {name: each for name, each in bounds.items() if each is not None}
        # Where nothing is known of the values at a path, they may be of other types, which no statistics are about.
        schema = pa.schema([*file.schema, *((name, typed[name]) for name in known)])
        wanted = possible(self._condition, schema, frozenset(known)) if known else None
        if wanted is None:
            return True
        # What is known of all rows of a fragment is compared with the filter; nothing is read.
        form = ds.ParquetFileFormat()
        whole = functools.reduce(operator.and_, known.values())
        fragment = form.make_fragment(pa.BufferReader(b""), partition_expression=whole)
        dataset = ds.FileSystemDataset([fragment], schema=schema, format=form)
        return any(True for _ in dataset.get_fragments(wanted))

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        table = pa.Table.from_batches([batch])
        self._count(batch)
        with _translated():
            prepared = self._prepared
            if prepared is None or not prepared[0].equals(batch.schema):
                prepared = self._prepared = batch.schema, self._expression(self._condition, batch.schema)
            scanner = ds.InMemoryDataset(table).scanner(columns={"keep": prepared[1]}, use_threads=False)
            keep = scanner.to_table().column("keep").combine_chunks()
            if not pa.types.is_boolean(keep.type):
                raise UsageError("a filter is true or false", expected="a comparison", found=str(keep.type))
        return pc.fill_null(keep, fill_value=False)

    def losses(self) -> list[str]:
        return self._others.texts('on_error="raise" makes this an error.')

    def _count(self, batch: pa.RecordBatch) -> None:
        for name, reference in self._references.items():
            number = batch.schema.get_field_index(_mark(name))
            column = batch.column(number) if number >= 0 else None
            if column is None or not pa.types.is_struct(column.type):
                continue  # typed values, all of them comparable
            others = column.field("other")
            count = len(others) - others.null_count
            first = str(others.drop_null()[0]) if count else ""
            if count and self._raises:
                raise InvalidData(
                    f"a filter compares values that are not {_class_of(reference.type)}",
                    expected=str(reference.type),
                    found=first,
                    where=f"{reference.label} of {reference.column}",
                    hint='on_error="null" leaves such rows out, and counts them.',
                )
            there = functools.reduce(pc.or_, [each.is_valid() for each in column.flatten()]).true_count
            where = f"at {reference.label} of {reference.column} are not {_class_of(reference.type)}"
            self._others.add(f"{where}, and no comparison of the filter holds for them", count, there, first)

    def _compared(self, leaf: Condition) -> str | None:
        """Return the name of the path whose values a condition compares, ``None`` for columns."""
        return leaf.path[0] if len(leaf.path) == 1 and leaf.path[0] in self._references else None

    def _expression(self, condition: Condition, schema: pa.Schema) -> Any:
        if condition.parts:
            return condition.joined(self._expression(part, schema) for part in condition.parts)
        if condition.expression is not None:
            return condition.expression
        name = self._compared(condition)
        if name is None:
            return in_column(condition, condition.path, schema)
        return in_variant(condition, _mark(name), schema)


def _class_of(type_: pa.DataType) -> str:
    return f"numbers ({type_})" if is_number(type_) else f"of type {type_}"


def _mark(name: str) -> str:
    """Return the name of the values at a path as they are compared; that of the path has them as they are read."""
    return name + "#"


def _condition(filters: Any) -> Condition:
    if isinstance(filters, pc.Expression):
        return condition_of(filters)
    if not isinstance(filters, list | tuple) or not filters:
        raise UsageError("these are not filters", expected=_FORMS, found=repr(filters)[:200])
    whole = [filters] if all(isinstance(each, tuple) for each in filters) else filters
    try:
        if not all(whole):
            raise ValueError("an empty list")
        return connected(
            "or_kleene", [connected("and_kleene", [_comparison(*each) for each in inner]) for inner in whole]
        )
    except BowstringError:
        raise
    except (TypeError, ValueError, OverflowError, KeyError, pa.ArrowException) as error:
        raise UsageError("these are not filters", expected=_FORMS, found=first_line(error)[:200]) from error


def _comparison(column: Any, symbol: str, value: Any) -> Condition:
    if symbol not in _OPERATORS:
        raise ValueError(f"{symbol!r} is not an operator")
    call = _OPERATORS[symbol]
    if call == "is_in":
        if isinstance(value, pa.ChunkedArray):
            value = value.combine_chunks()
        value = value if isinstance(value, pa.Array) else list(value)
    if isinstance(column, int) or isinstance(value, pc.Expression):
        place = pc.field(column if isinstance(column, int) else _path(column))
        condition = condition_of(place.isin(value) if call == "is_in" else COMPARISONS[call](place, value))
    elif call != "is_in" and number_of(value) is None:
        condition = Condition(call, _path(column), pa.scalar(value))
    else:
        condition = Condition(call, _path(column), value)
    return Condition("invert", parts=(condition,)) if symbol == "not in" else condition


def _path(column: Any) -> tuple[str, ...]:
    """Return the names of a column, and of the fields in it, that a tuple begins with."""
    if isinstance(column, str):
        return (column,)
    if isinstance(column, tuple | list) and column and all(isinstance(each, str) for each in column):
        return tuple(column)
    if isinstance(column, pc.Expression):
        path = condition_of(column.is_valid()).path
        if len(path) == 1 and reference_of(path[0]) is not None:
            return path
    raise UsageError(
        "a filter compares a column", expected="a name, or variant.path(…)", found=str(column)[:200]
    )


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except BowstringError:
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UsageError("the filters do not fit the columns", found=first_line(error)) from error
