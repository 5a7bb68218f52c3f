"""Where fetched batches are written: a file that is there when all of it is, and not before."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from bowstring import ipc
from bowstring.errors import Unsupported, UsageError

__all__ = ["EXTENSIONS", "check_extension", "file_sink"]

Write = Callable[[pa.RecordBatch], None]


def _ipc_file(path: str, schema: pa.Schema) -> Any:
    # A dictionary that grows between batches is written as what was added: a file cannot replace one.
    return ipc.new_file(path, schema, options=ipc.IpcWriteOptions(emit_dictionary_deltas=True))


def _ipc_stream(path: str, schema: pa.Schema) -> Any:
    return ipc.new_stream(path, schema)


def _parquet(path: str, schema: pa.Schema) -> Any:
    from bowstring.parquet import ParquetWriter

    return ParquetWriter(path, schema)


def _vortex(path: str, schema: pa.Schema) -> Any:
    from bowstring.vortex import new_stream

    return new_stream(path, schema)


def _csv(path: str, schema: pa.Schema) -> Any:
    import pyarrow.csv

    return pyarrow.csv.CSVWriter(path, schema)


_WRITERS: dict[str, Callable[[str, pa.Schema], Any]] = {
    ".parquet": _parquet,
    ".arrow": _ipc_file,
    ".feather": _ipc_file,
    ".arrows": _ipc_stream,
    ".vortex": _vortex,
    ".csv": _csv,
}
EXTENSIONS = tuple(_WRITERS)


def check_extension(path: str) -> str:
    """Return the extension that says how `path` is written.

    Raises
    ------
    UsageError
        It says nothing.

    Examples
    --------
    >>> check_extension("out/Trips.PARQUET")
    '.parquet'
    """
    extension = os.path.splitext(path)[1].lower()
    if extension not in _WRITERS:
        raise UsageError(
            "the extension does not say how to write the file",
            expected=", ".join(EXTENSIONS),
            found=os.path.basename(path),
        )
    return extension


@contextlib.contextmanager
def file_sink(path: str, schema: pa.Schema) -> Iterator[Write]:
    """Write batches to a file that takes its name when the ``with`` block ends well, and else is removed.

    Raises
    ------
    UsageError
        The extension says nothing, or the folder is not there.
    Unsupported
        The format has no place for a type of the schema.
    """
    make = _WRITERS[check_extension(path)]
    folder, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError("there is no such folder", found=folder)
    unfinished = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.part")
    try:
        with _translated(path), make(unfinished, schema) as writer:
            yield _writing(writer, path)
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)
        raise


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
