"""Files that hold Arrow data: which format one has, how its batches are read, and how batches are written."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import importlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bowstring import ipc, parquet
from bowstring.errors import (
    InvalidData,
    LimitExceeded,
    MissingDependency,
    MissingFile,
    Unsupported,
    UsageError,
    first_line,
)
from bowstring.files import Target
from bowstring.parquet.file import OpenFile

_PARQUET = b"PAR1"
_ENCRYPTED_PARQUET = b"PARE"
_ARROW_FILE = b"ARROW1"
_FEATHER_1 = b"FEA1"
_GUESSED_BYTES = 16
_EXPECTED = "Parquet, an Arrow IPC file or stream, Feather, or a Vortex IPC stream"


class Format(enum.Enum):
    """What a file is, by its first bytes; Feather (version 2) is another name of the Arrow IPC file."""

    PARQUET = "Parquet"
    ARROW_FILE = "Arrow IPC file"
    ARROW_STREAM = "Arrow IPC stream"
    VORTEX_STREAM = "Vortex IPC stream"
    CSV = "CSV"
    JSON_LINES = "JSON lines"
    QUERY = "DuckDB query"


@dataclasses.dataclass(frozen=True)
class DataFile:
    """A file whose batches can be read any number of times, one reader after the other or side by side."""

    path: str  # or the text of a query
    format: Format
    schema: pa.Schema
    num_rows: int | None  # if the file gives it without being read
    nbytes: int  # approximate size in memory
    table: pa.Table | None = None  # what was read already

    def reader(self) -> pa.RecordBatchReader:
        """Open the file, and return its batches one by one: views of a memory map but for Parquet."""
        if self.table is not None:
            return self.table.to_reader()
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            with _open(self.path, self.format) as stream:
                for batch in stream:
                    yield batch.to_arrow()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _unreadable(self.path, self.format.value, error) from error


def read_text(path: str) -> DataFile | None:
    """Return the rows of a file of text, by its extension; ``None`` where it has none of these.

    It is read whole: what a column is, its last row may decide.
    """
    extension = os.path.splitext(path)[1].lower()
    if extension not in _TEXTS:
        return None
    format_, read = _TEXTS[extension]
    _, nbytes = _beginning(path)
    try:
        table = read(path, nbytes)
        table.validate(full=True)  # of JSON, text is not checked
    except (pa.ArrowException, OSError, ValueError) as error:
        hint = (
            "bow.variant.from_json(path=…) reads rows that differ." if format_ is Format.JSON_LINES else None
        )
        raise _unreadable(path, format_.value, error, hint) from error
    return DataFile(path, format_, table.schema, table.num_rows, table.nbytes, table)


def _csv(path: str, _: int) -> pa.Table:
    import pyarrow.csv

    table = pyarrow.csv.read_csv(path)

    def again(index: int, field: pa.Field) -> pa.ChunkedArray:
        options = pyarrow.csv.ConvertOptions(column_types={field.name: field.type})
        return pyarrow.csv.read_csv(path, convert_options=options).column(index)

    return _with_whole_numbers(table, again)


def _json_lines(path: str, nbytes: int) -> pa.Table:
    import pyarrow.json

    # A row must fit into two blocks.
    options = pyarrow.json.ReadOptions(block_size=min(max(nbytes, _JSON_BLOCK), _MOST_JSON_BLOCK))

    def again(_: int, field: pa.Field) -> pa.ChunkedArray:
        parsed = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([field]), unexpected_field_behavior="ignore"
        )
        return pyarrow.json.read_json(path, options, parsed).column(0)

    return _with_whole_numbers(pyarrow.json.read_json(path, options), again)


def _with_whole_numbers(table: pa.Table, again: Callable[[int, pa.Field], pa.ChunkedArray]) -> pa.Table:
    """Return a table with whole numbers as they stand in the text: pyarrow makes floats of those beyond int64."""
    for index, field in enumerate(table.schema):
        for whole in _WHOLE:
            wider = field.with_type(_wider(table.column(index).combine_chunks(), whole))
            if wider == field:
                break
            with contextlib.suppress(pa.ArrowInvalid):  # they have fractions, or more digits
                table = table.set_column(index, wider, again(index, wider))
                break
    return table


def _wider(array: pa.Array, whole: pa.DataType) -> pa.DataType:
    """Return the type of an array with `whole` in place of floats that int64 would not hold."""
    type_ = array.type
    if pa.types.is_struct(type_):
        return pa.struct([each.with_type(_wider(array.field(each.name), whole)) for each in type_])
    if pa.types.is_list(type_):
        return pa.list_(_wider(array.flatten(), whole))
    is_large = pa.types.is_float64(type_) and pc.any(pc.greater_equal(pc.abs(array), 2.0**63)).as_py()
    return whole if is_large else type_


_WHOLE = (pa.uint64(), pa.decimal128(38))


_JSON_BLOCK = 16 << 20
_MOST_JSON_BLOCK = 256 << 20
_TEXTS: dict[str, tuple[Format, Callable[[str, int], pa.Table]]] = {
    ".csv": (Format.CSV, _csv),
    ".jsonl": (Format.JSON_LINES, _json_lines),
    ".ndjson": (Format.JSON_LINES, _json_lines),
}


def query(text: str) -> DataFile:
    """Return the rows of a query that DuckDB answers, over files and whatever else it reads."""
    try:
        import duckdb
    except ImportError as error:
        raise MissingDependency("a query needs DuckDB", hint="pip install duckdb") from error
    try:
        table = pa.table(duckdb.sql(text))
    except duckdb.Error as error:
        raise UsageError(
            "DuckDB does not answer the query", found=first_line(error), where=text[:200]
        ) from error
    except TypeError as error:  # it has no result
        raise UsageError("a query has rows", found=text[:200]) from error
    return DataFile(text, Format.QUERY, table.schema, table.num_rows, table.nbytes, table)


def recognise(path: str) -> DataFile:
    """Return what a file holds."""
    magic, nbytes = _beginning(path)
    if magic.startswith(_FEATHER_1):
        raise Unsupported(
            "Feather version 1",
            where=path,
            hint="Write it anew: pyarrow.feather.write_feather(pyarrow.feather.read_table(old), new).",
        )
    if magic.startswith(_ENCRYPTED_PARQUET):
        raise Unsupported("encrypted Parquet files", where=path)
    for begins, format_ in ((_PARQUET, Format.PARQUET), (_ARROW_FILE, Format.ARROW_FILE)):
        if magic.startswith(begins):
            try:
                return _described(path, format_, nbytes)
            except (pa.ArrowException, OSError, ValueError) as error:
                what = f"this file begins like {format_.value}, and is not one"
                raise UsageError(what, found=first_line(error), where=path) from error
    try:
        return _described(path, Format.ARROW_STREAM, nbytes)
    except (pa.ArrowException, OSError, ValueError, LimitExceeded, Unsupported) as error:
        # A Vortex IPC stream has no magic: its first message says that it is one.
        with contextlib.suppress(InvalidData, LimitExceeded, Unsupported):
            return _described(path, Format.VORTEX_STREAM, nbytes)
        raise UsageError(
            "this file has none of the formats", expected=_EXPECTED, found=repr(magic), where=path
        ) from error


def _beginning(path: str) -> tuple[bytes, int]:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError("this is not a plain file", expected=_EXPECTED, found=path)
        with open(path, "rb") as file:
            magic = file.read(8)
    except FileNotFoundError as error:
        raise MissingFile("there is no such file", found=path) from error
    except PermissionError as error:
        raise UsageError("this file may not be read", found=path) from error
    if not magic:
        raise UsageError("this file is empty", expected=_EXPECTED, found=path)
    return magic, status.st_size


def _described(path: str, format_: Format, nbytes: int) -> DataFile:
    if format_ is not Format.PARQUET:
        with _open(path, format_) as stream:
            return DataFile(path, format_, stream.schema, None, nbytes)
    with contextlib.closing(OpenFile(path)) as file:
        # Dictionaries and runs make a file's pages far smaller than the rows in memory.
        fixed = [each.type.bit_width // 8 for each in file.schema if pa.types.is_primitive(each.type)]
        row_bytes = sum(fixed) + _GUESSED_BYTES * (len(file.schema) - len(fixed))
        pages = sum(map(file.row_group_bytes, range(file.num_row_groups)))
        return DataFile(path, format_, file.schema, file.num_rows, max(pages, file.num_rows * row_bytes))


def _open(path: str, format_: Format) -> Any:
    """Open a file of batches."""
    if format_ is Format.VORTEX_STREAM:
        return vortex().open_stream(path)
    if format_ is Format.PARQUET:
        return parquet.read(path)
    return ipc.open_file(path) if format_ is Format.ARROW_FILE else ipc.open_stream(path)


def vortex() -> Any:
    """Return the module `bowstring.vortex`, which most commands need not load."""
    return importlib.import_module("bowstring.vortex")


def _unreadable(path: str, format_: str, error: BaseException, hint: str | None = None) -> InvalidData:
    return InvalidData(f"the {format_} cannot be read", found=first_line(error), where=path, hint=hint)


Write = Callable[[pa.RecordBatch], None]
EXTENSIONS = (".parquet", ".arrow", ".feather", ".arrows", ".vortex", ".csv")
_CONTINUATION = b"\xff\xff\xff\xff"  # begins a message of a stream


def check_extension(path: str) -> str:
    """Return the extension that says how `path` is written; ``-`` is the standard output, for a stream."""
    if path == "-":
        return ".arrows"
    extension = os.path.splitext(path)[1].lower()
    if extension not in EXTENSIONS:
        raise UsageError(
            "the extension does not say how to write the file",
            expected=", ".join(EXTENSIONS),
            found=os.path.basename(path),
        )
    return extension


def _writer(extension: str, file: Any, schema: pa.Schema, *, compress: bool) -> Any:
    match extension:
        case ".parquet":
            return parquet.ParquetWriter(file, schema)
        case ".vortex":
            return vortex().new_stream(file, schema, compress=compress)
        case ".arrows":
            return ipc.new_stream(file, schema)
        case ".csv":
            import pyarrow.csv

            return pyarrow.csv.CSVWriter(file, schema)
    # A dictionary that grows between batches is written as what was added: a file cannot replace one.
    return ipc.new_file(file, schema, options=ipc.IpcWriteOptions(emit_dictionary_deltas=True))


def check_compress(path: str | None) -> None:
    """Refuse ``--compress`` where a file is not written in a format that it means something for."""
    if path is None or check_extension(path) != ".vortex":
        raise UsageError(
            "--compress chooses encodings of Vortex",
            expected="--to FILE.vortex",
            found="no --to" if path is None else f"--to {os.path.basename(path)}",
        )


@contextlib.contextmanager
def file_sink(path: str, schema: pa.Schema, *, compress: bool = False) -> Iterator[Write]:
    """Write batches to a file that replaces what the path names when the ``with`` block ends well.

    On the standard output, a stream that ends otherwise is not a valid one.
    """
    extension = check_extension(path)
    if path == "-":
        try:
            with (
                _translated(path),
                _writer(extension, sys.stdout.buffer, schema, compress=compress) as writer,
            ):
                yield _writing(writer, path)
        except BaseException:
            # Where a stream just ends, its reader takes it for whole.
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.buffer.write(_CONTINUATION)
            raise
        return
    with (
        Target(path) as file,
        _translated(path),
        _writer(extension, file, schema, compress=compress) as writer,
    ):
        yield _writing(writer, path)


def _writing(writer: Any, path: str) -> Write:
    def write(batch: pa.RecordBatch) -> None:
        with _translated(path):
            writer.write_batch(batch)

    return write


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError, UsageError) as error:
        raise Unsupported(
            f"these data cannot be written as {check_extension(path)}",
            found=str(error).partition("\n")[0],
            where=path,
            hint="An Arrow stream (.arrows) takes every type, and dictionaries that change.",
        ) from error
