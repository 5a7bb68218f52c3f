"""Where Parquet files come from: paths, URLs, open files and memory."""

from __future__ import annotations

import os
import re
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from bowstring.errors import MissingFile, Unsupported, UsageError, first_line

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_EXPECTED: Final = "a path, a URL, a binary file, or bytes"


def open_source(source: Any) -> pa.NativeFile:
    """Open a source of which any part can be read."""
    if isinstance(source, str | os.PathLike):
        return _open_path(os.fspath(source))
    if isinstance(source, pa.NativeFile):
        return source
    if hasattr(source, "read"):
        return pa.PythonFile(source, mode="r")
    try:
        return pa.BufferReader(pa.py_buffer(source))
    except TypeError as error:
        raise UsageError(
            "this is not a Parquet file", expected=_EXPECTED, found=type(source).__name__
        ) from error


def name_of(source: Any) -> str:
    """Return what errors call a source."""
    if isinstance(source, str | os.PathLike):
        return str(os.fspath(source))
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else type(source).__name__


def is_url(source: Any) -> bool:
    """Return whether text names a file by a URL."""
    return isinstance(source, str) and bool(_URL.match(source)) and not os.path.exists(source)


def file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, one of ``pyarrow.fs``, and the path there.
    Java's spellings are accepted: ``file:/x`` for ``file:///x``, and letters of any script.
    """
    import pyarrow.fs

    if url.startswith("file:/") and not url.startswith("file://"):
        url = url.replace("file:/", "file:///", 1)
    plain = "".join(each if each.isascii() else quote(each) for each in url)
    try:
        found: tuple[Any, str] = pyarrow.fs.FileSystem.from_uri(plain)
    except (pa.ArrowException, OSError) as error:
        raise Unsupported(
            "pyarrow has no file system for the URL", found=first_line(error), where=url
        ) from error
    return found


def _open_path(path: str | bytes) -> pa.NativeFile:
    name = os.fsdecode(path)
    try:
        if is_url(name):
            system, inside = file_system(name)
            return system.open_input_file(inside)
        if os.path.isdir(name):
            raise UsageError("this is a folder", found=name, hint="Give the list of its files.")
        return pa.OSFile(name, "rb")
    except FileNotFoundError as error:
        raise MissingFile("there is no such file", found=name) from error
