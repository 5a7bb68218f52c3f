"""Sources: where the items of a data set come from, made of whatever a user publishes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from bowstring.columnar.batch import batches
from bowstring.columnar.interchange.source import gives_batches
from bowstring.columnar.layout import Layout
from bowstring.errors import UnknownTicket, UsageError
from bowstring.ipc.flatbuf.schema import check_dictionaries
from bowstring.limits import DEFAULT_LIMITS
from bowstring.serving.lazy import Lazy
from bowstring.serving.resident import Resident

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from bowstring.columnar.batch import Batch
    from bowstring.columnar.materialize import Lending
    from bowstring.dissociated.items import Item, ItemRun
    from bowstring.memory import Device, Pending, Pool, Region

__all__ = ["MakeRoom", "Source", "source_of"]

# Waits until there may be room for so many bytes; false when there will not be.
MakeRoom = Callable[[int], bool]


class Source(Protocol):
    """Where the items of a data set come from."""

    schema: pa.Schema
    charged: bool
    num_rows: int | None
    num_batches: int | None
    nbytes: int | None
    devices: tuple[Device, ...]
    """Where the memory of batches is, the host aside."""
    lending: Lending | None
    """What is lent where it lies, if that was asked for."""
    pending: Pending | None
    """Work on the data that nobody has waited for, if there is any."""

    def items(
        self, columns: tuple[str, ...] | None, *, pointers: bool, make_room: MakeRoom
    ) -> Iterator[Item]:
        """Return the items of one stream of the data set, the schema first.

        `make_room` is called when the pool has none for a batch; it waits until there may be some.
        """

    def runs(self, columns: tuple[str, ...] | None) -> Iterator[Item | ItemRun] | None:
        """Return the same with packed bodies, many items together; ``None`` where they are made one by one."""

    def regions(self, columns: tuple[str, ...] | None, first: int | None = None) -> list[Region]:
        """Return regions that a stream of these columns will point into, as far as they are known beforehand.

        With `first`, only so many of its messages need be looked at.
        """

    def prepare(self, *, pointers: bool) -> None:
        """Do what can be done before the first reader comes."""

    def release(self) -> None:
        """Let go of the data."""


def source_of(
    data: Any,
    schema: pa.Schema | None,
    pool: Pool,
    readers: int | None,
    seconds: float = DEFAULT_LIMITS.device_timeout,
    *,
    in_place: bool = False,
    events: bool = False,
) -> tuple[Source, int | None]:
    """Return (source, readers) for whatever a user publishes.

    Tables, batches and arrays become resident; readers, generators and callables are produced lazily. What can
    be read only once has one reader. `seconds` is the most that each wait for a device may take.
    """
    again = gives_batches(data) and not _reads_once(data)
    if in_place and (again or _reads_once(data) or (callable(data) and not _is_arrow(data))):
        raise UsageError(
            "what is produced lazily cannot be lent in place",
            found=type(data).__name__,
            hint="Its memory would be freed while the reader has it open: publish a table or a list of batches.",
        )
    if callable(data) and not _is_arrow(data):
        first_schema, first = _batches(data(), schema)
        pending = [(first_schema, first)]

        def produce() -> tuple[pa.Schema, Iterable[Batch]]:
            return pending.pop() if pending else batches(data(), schema)

        return Lazy(first_schema, produce, pool, seconds), readers
    found = _batches(data, schema)
    if again:  # a file, which can be read any number of times
        return Lazy(found[0], lambda: _batches(data, schema), pool, seconds), readers
    if _reads_once(data):
        if readers not in (None, 1):
            raise UsageError(
                "a reader or generator can be read only once",
                expected="readers=1",
                found=f"readers={readers}",
                hint="Publish a callable that makes a new one for each reader, or a table.",
            )
        once = [found]

        def produce_once() -> tuple[pa.Schema, Iterable[Batch]]:
            if not once:
                raise UnknownTicket("the data set could be read once, and a reader broke off")
            return once.pop()

        return Lazy(found[0], produce_once, pool, seconds), 1
    return Resident(*found, pool, seconds, in_place=in_place, events=events), readers


def _batches(data: Any, schema: pa.Schema | None) -> tuple[pa.Schema, Iterator[Batch]]:
    """Return a schema that can be sent, and its batches."""
    found = batches(data, schema)
    check_dictionaries(Layout.of(found[0]))
    return found


def _is_arrow(data: Any) -> bool:
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


def _reads_once(data: Any) -> bool:
    return hasattr(data, "__next__") or hasattr(data, "read_next_batch")
