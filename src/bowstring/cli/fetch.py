"""``bowstring fetch``: read a published data set."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bowstring.cli.progress import progress
from bowstring.cli.python_values import python_values
from bowstring.cli.sinks import check_extension, file_sink
from bowstring.cli.tables import print_table
from bowstring.cli.text import clipped, duration, number, shown, size
from bowstring.cli.tokens import endpoint_with_token
from bowstring.client import connect

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from bowstring.client.stream import Stream, StreamStatistics
    from bowstring.columnar.batch import Batch

__all__ = ["run"]

_PREVIEW_ROWS = 10
_CELL_WIDTH = 32


def run(arguments: argparse.Namespace) -> int:
    """Read the data set to its end, or to the limit; write it to a file, or show its first rows."""
    if arguments.to is not None:
        check_extension(arguments.to)
    began = time.monotonic()
    endpoint = endpoint_with_token(arguments.uri, arguments.ticket, arguments.token_file)
    with connect(endpoint, columns=arguments.columns) as stream:
        preview = Preview(stream.schema)
        if arguments.to is None:
            taken = _read(stream, arguments.limit, preview.add)
        else:
            with file_sink(arguments.to, stream.schema) as write:
                taken = _read(stream, arguments.limit, lambda batch: write(_checked(batch)))
        stats, seconds = stream.stats, time.monotonic() - began
    if arguments.json:
        print(json.dumps(_facts(arguments, stream.schema, preview, taken, stats, seconds)))
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
    with progress("fetch", _expected_rows(stream, limit)) as advance:
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


def _checked(batch: Batch) -> pa.RecordBatch:
    """Return a batch as pyarrow's that may be followed anywhere: no producer's word is taken for its offsets."""
    here = batch.to_device("cpu")
    here.validate(full=True)
    return here.to_arrow()


def _expected_rows(stream: Stream, limit: int | None) -> int | None:
    known: int | None = getattr(stream, "num_rows", None)
    return known if limit is None or known is None else min(known, limit)


class Preview:
    """The first rows of a stream, as Python objects: the batches themselves can go."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.rows: list[tuple[Any, ...]] = []

    def add(self, batch: Batch) -> None:
        """Keep what is still wanted of a batch."""
        wanted = min(_PREVIEW_ROWS - len(self.rows), batch.num_rows)
        if wanted > 0 and batch.num_columns:
            found = _checked(batch.slice(0, wanted))
            columns = [python_values(found, index) for index in range(found.num_columns)]
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
    print(
        f"{number(taken.rows)} rows in {number(taken.batches)} batches, {size(taken.nbytes)}, "
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
        "schema": [
            {"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema
        ],
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
