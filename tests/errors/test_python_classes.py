"""Errors are of the classes that pyarrow raises in their place, and no handler of ours mistakes them."""

from __future__ import annotations

import ast
import builtins
import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring import errors
from bowstring.errors import BowstringError, ClosedError, EndOfStream, Truncated

ROOT = Path(__file__).parents[2]
# Another handler is first for Truncated, and does the same: both close and raise; nothing of ours is raised inside.
REVIEWED = {
    "src/bowstring/memory/writable_memfd.py",
    "kernels/jit.py",
    # Both mean the end of a stream by either class.
    "src/bowstring/client/do_get.py",
    "src/bowstring/flight/catalogs.py",
}
ADDED = {EndOfStream: StopIteration, ClosedError: ValueError, Truncated: OSError}


def stream_of(rows: int = 3) -> bytes:
    """Return an Arrow stream of one batch."""
    sink = io.BytesIO()
    with bow.ipc.new_stream(sink, pa.schema({"a": pa.int64()})) as writer:
        writer.write_batch(pa.record_batch({"a": list(range(rows))}))
    return sink.getvalue()


def test_readers_raise_what_those_of_pyarrow_raise() -> None:
    """The end of a stream, a closed reader and missing bytes are caught by the `except` that serves for pyarrow."""
    data = stream_of()
    for library in (pa.ipc, bow.ipc):
        with library.open_stream(data) as reader:
            reader.read_next_batch()
            with pytest.raises(StopIteration):
                reader.read_next_batch()
        with pytest.raises(StopIteration):
            library.MessageReader.open_stream(b"").read_next_message()
        with pytest.raises(OSError):
            library.open_stream(data[:-40]).read_next_batch()
    reader = bow.ipc.open_stream(data)
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.read_next_batch()


def test_a_reader_can_be_the_next_of_an_iterator() -> None:
    """A class whose `__next__` calls `read_next_batch` ends where the stream ends."""
    reader = bow.ipc.open_stream(stream_of())

    class Relay:
        def __iter__(self) -> Relay:
            return self

        def __next__(self) -> bow.Batch:
            return reader.read_next_batch()

    assert [batch.num_rows for batch in Relay()] == [3]


def test_missing_bytes_are_never_the_end_of_a_stream() -> None:
    """An iteration over a stream that was cut off raises, and does not end early."""
    data = stream_of()
    with pytest.raises(Truncated):
        list(bow.ipc.open_stream(data[:-40]))


def _catches(handler: ast.ExceptHandler, bases: tuple[type, ...]) -> bool:
    """Return whether a handler catches an error with these classes above it."""
    if handler.type is None:
        return True
    named = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    for each in named:
        name = each.attr if isinstance(each, ast.Attribute) else each.id if isinstance(each, ast.Name) else ""
        found = getattr(errors, name, None) or getattr(builtins, name, None)
        if found in bases:
            return True
    return False


def _tries() -> Iterator[tuple[str, ast.Try]]:
    for folder in ("src", "kernels"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Try):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


@pytest.mark.parametrize("error", ADDED)
def test_no_order_of_handlers_changes_meaning(error: type[BowstringError]) -> None:
    """Whichever handler catches the error as one of ours still does: none of the added class is before it."""
    after = error.__mro__
    before = tuple(cls for cls in after if cls is not ADDED[error])
    wrong = []
    tries = 0
    for place, node in _tries():
        tries += 1
        old = [handler for handler in node.handlers if _catches(handler, before)][:1]
        new = [handler for handler in node.handlers if _catches(handler, after)][:1]
        if old and old != new and place.partition(":")[0] not in REVIEWED:
            wrong.append(place)
    assert tries > 100
    assert not wrong


def test_closed_sources_are_named_as_such() -> None:
    """A source that raises ClosedError when it is asked for data is closed, and not of a wrong kind."""

    class Closed:
        def __arrow_c_array__(self, requested_schema: object = None) -> None:
            raise ClosedError("it was closed")

    class ClosedStream:
        def __arrow_c_stream__(self, requested_schema: object = None) -> None:
            raise ClosedError("it was closed")

    for source in (Closed(), ClosedStream()):
        with pytest.raises(ClosedError):
            bow.variant.validate(source)
