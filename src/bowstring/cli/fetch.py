"""``bowstring fetch``: read a published data set."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bowstring.cli.arguments import endpoint_with_token, tls_config
from bowstring.cli.facts import schema_facts
from bowstring.cli.files import check_compress, check_extension, file_sink
from bowstring.cli.terminal import clipped, duration, number, print_table, progress, shown, size
from bowstring.client import ConnectOptions, connect
from bowstring.columnar.marks import is_variant
from bowstring.errors import BowstringError, InvalidBody

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from bowstring.client.stream import Stream, StreamStatistics
    from bowstring.columnar.batch import Batch

_PREVIEW_ROWS = 10
_CELL_WIDTH = 32


def run(arguments: argparse.Namespace) -> int:
    """Read the data set to its end, or to the limit; write it to a file, or show its first rows."""
    if arguments.to is not None:
        check_extension(arguments.to)
    if arguments.compress:
        check_compress(arguments.to)
    began = time.monotonic()
    tls, name = tls_config(arguments), arguments.name or arguments.ticket
    endpoint = endpoint_with_token(arguments.uri, name, arguments.token_file, tls)
    # What is shown or written is checked here.
    with connect(
        endpoint, columns=arguments.columns, tls=tls, options=ConnectOptions(validate="structure")
    ) as stream:
        preview = Preview(stream.schema)
        if arguments.to is None:
            taken = _read(stream, arguments.limit, preview.add)
        else:
            with file_sink(arguments.to, stream.schema, compress=arguments.compress) as write:
                full = arguments.validate == "full"
                taken = _read(stream, arguments.limit, lambda batch: write(_on_host(batch, full=full)))
        stats, seconds = stream.stats, time.monotonic() - began
    if arguments.json:
        facts = _facts(arguments, stream.schema, preview, taken, stats, seconds)
        print(json.dumps(facts), file=sys.stderr if arguments.to == "-" else sys.stdout)
        return 0
    if arguments.to is None:
        preview.print(taken.rows)
    _print_stats(taken, stats, seconds, arguments.to)
    return 0


@dataclasses.dataclass(slots=True)
class Taken:
    """What was kept of a stream: all of it, or as much as the limit lets through."""

    rows: int = 0
    batches: int = 0
    nbytes: int = 0


def _read(stream: Stream, limit: int | None, take: Callable[[Batch], None]) -> Taken:
    left = limit
    taken = Taken()
    known: int | None = getattr(stream, "num_rows", None)
    with progress("fetch", known if limit is None or known is None else min(known, limit)) as advance:
        while left != 0:
            batch = next(stream, None)
            if batch is None:
                break
            if left is not None:
                batch = batch if batch.num_rows <= left else batch.slice(0, left)
                left -= batch.num_rows
            take(batch)
            taken.rows += batch.num_rows
            taken.batches += 1
            taken.nbytes += batch.nbytes
            advance(batch.num_rows, batch.nbytes)
            del batch  # its memory goes home before the next one is asked for
    return taken


def _on_host(batch: Batch, *, full: bool) -> pa.RecordBatch:
    """Return a batch as pyarrow's; checked in `full`, no producer's word is taken for its offsets."""
    here = batch.to_device("cpu")
    if full:
        here.validate(full=True)
    return here.to_arrow()


class Preview:
    """The first rows of a stream, as Python objects: the batches themselves can go."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.rows: list[tuple[Any, ...]] = []

    def add(self, batch: Batch) -> None:
        """Keep what is still wanted of a batch."""
        wanted = min(_PREVIEW_ROWS - len(self.rows), batch.num_rows)
        if wanted > 0 and batch.num_columns:
            head = _on_host(batch.slice(0, wanted), full=True)
            columns = [python_values(head, index) for index in range(head.num_columns)]
            self.rows += zip(*columns, strict=True)

    def print(self, rows: int) -> None:
        """Print the rows, and how many more there are."""
        if len(self._schema):
            right = [index for index, field in enumerate(self._schema) if _is_number(field.type)]
            headings = [clipped(shown(name), _CELL_WIDTH) for name in self._schema.names]
            print_table(headings, [[_cell(value) for value in row] for row in self.rows], right=right)
        if rows > len(self.rows):
            print(f"… {number(rows - len(self.rows))} more rows")


def _jsonable(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return value.hex()
        case list() | tuple():
            return [_jsonable(each) for each in value]
        case dict():
            return {str(name): _jsonable(each) for name, each in value.items()}
        case _:
            return str(value)


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _cell(value: object) -> str:
    return "∅" if value is None else clipped(shown(value), _CELL_WIDTH)


def _print_stats(taken: Taken, stats: StreamStatistics, seconds: float, to: str | None) -> None:
    stream = sys.stdout if to is None else sys.stderr
    written = "" if to is None else f" → {shown(to)}"
    rows, batches = "row" + "s" * (taken.rows != 1), "batch" + "es" * (taken.batches != 1)
    print(
        f"{number(taken.rows)} {rows} in {number(taken.batches)} {batches}, {size(taken.nbytes)}, "
        f"in {duration(seconds)} ({duration(stats.seconds_waited)} of it waiting){written}",
        file=stream,
    )
    print(f"device {shown(stats.device)}; path {shown(stats.path)}: {shown(stats.why)}", file=stream)


def _facts(
    arguments: argparse.Namespace,
    schema: pa.Schema,
    preview: Preview,
    taken: Taken,
    stats: StreamStatistics,
    seconds: float,
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "schema": schema_facts(schema),
        "rows": taken.rows,
        "batches": taken.batches,
        "bytes": taken.nbytes,
        "device": stats.device,
        "path": stats.path,
        "why": stats.why,
        "regions": stats.regions,
        "seconds": seconds,
        "seconds_waited": stats.seconds_waited,
    }
    if arguments.to is None:
        facts["first_rows"] = _jsonable(preview.rows)
    else:
        facts["to"] = arguments.to
    return facts


_MOST: Final = 1000
"""Values of one list that are shown; more are counted."""
_LISTS: Final = (
    pa.ListScalar,
    pa.LargeListScalar,
    pa.FixedSizeListScalar,
    pa.ListViewScalar,
    pa.LargeListViewScalar,
)
_WRAPPED: Final = (pa.DictionaryScalar, pa.ExtensionScalar, pa.UnionScalar, pa.RunEndEncodedScalar)


def python_values(batch: pa.RecordBatch, index: int) -> list[Any]:
    """Return the values of a column of a valid batch: Variants as JSON, geometries as WKT, also nested ones."""
    field = batch.schema.field(index)
    try:
        return _values(batch.column(index), field)
    except KeyError:  # Pyarrow has no class for it: intervals of months, and of days.
        return [f"({field.type})"] * batch.num_rows


def _values(array: pa.Array, field: pa.Field) -> list[Any]:
    texts = _json(array, field) if is_variant(field) else _wkt(array, field)
    if texts is not None:
        return texts
    if pa.types.is_struct(array.type):
        names = [each.name for each in array.type]
        columns = [_values(*each) for each in zip(array.flatten(), array.type, strict=True)]
        rows = zip(*columns, strict=True) if columns else [()] * len(array)
        valid = array.is_valid().to_pylist()
        return [
            dict(zip(names, row, strict=True)) if there else None
            for row, there in zip(rows, valid, strict=True)
        ]
    return [_value(scalar) for scalar in array]


def _json(array: pa.Array, field: pa.Field) -> list[Any] | None:
    """Return Variants as JSON, unless they cannot be read."""
    from bowstring.columnar.batch import Batch
    from bowstring.variant import to_json

    column = Batch.from_arrow(pa.RecordBatch.from_arrays([array], schema=pa.schema([field])))[0]
    try:
        texts: list[Any] = to_json(column).to_pylist()
    except BowstringError:
        return None
    return texts


def _wkt(array: pa.Array, field: pa.Field) -> list[Any] | None:
    """Return geometries as WKT, the malformed ones as they are; nothing of other fields."""
    from bowstring.geo.column import type_of
    from bowstring.geo.wkt import to_wkt

    try:
        marked = type_of(field) is not None
    except BowstringError:
        marked = False
    if not marked:
        return None
    values: list[Any] = [_value(scalar) for scalar in array]
    for place, value in enumerate(values):
        with contextlib.suppress(InvalidBody):
            values[place] = to_wkt(value) if isinstance(value, bytes) else value
    return values


def _value(scalar: pa.Scalar) -> Any:
    if not scalar.is_valid:
        return None
    if isinstance(scalar, _WRAPPED) and not isinstance(scalar, pa.UuidScalar):
        return _value(scalar.value)
    if isinstance(scalar, _LISTS):  # maps are lists of structs
        count = len(scalar.values)
        if count > _MOST:
            return f"{count} values"
        item = scalar.type.value_field if hasattr(scalar.type, "value_field") else None
        items = _values(scalar.values, item or pa.field("entries", scalar.values.type))
        return [tuple(each.values()) for each in items] if isinstance(scalar, pa.MapScalar) else items
    if isinstance(scalar, pa.StructScalar):  # of a dictionary or a union
        return {name: _value(each) for name, each in scalar.items()}
    return _plain(scalar)


def _plain(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, LookupError, pa.ArrowException):
        pass
    try:
        # Python has no nanoseconds, and no years beyond 9999.
        return str(scalar.cast(pa.string()))
    except pa.ArrowException:
        return _without_zone(scalar)


def _without_zone(scalar: pa.Scalar) -> str:
    """Return a time in a zone that nobody knows here as one of UTC, with the zone's name."""
    type_ = scalar.type
    if not pa.types.is_timestamp(type_):
        return f"({type_})"
    try:
        return f"{pa.scalar(scalar.value, pa.timestamp(type_.unit)).cast(pa.string())}Z in {type_.tz}"
    except pa.ArrowException:
        return f"{scalar.value} {type_.unit} in {type_.tz}"
