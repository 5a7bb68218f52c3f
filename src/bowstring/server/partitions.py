"""Partitions: several data sets of a server that one reader reads in one stream, and when each of them lets go."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Final

from bowstring.dissociated.partitions import PartitionMark
from bowstring.errors import BowstringError, InvalidData, Unsupported
from bowstring.server.encoder import Encoder, MakeRoom, Produced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from bowstring.dissociated.items import IpcMessage
    from bowstring.dissociated.partitions import PartitionRequest
    from bowstring.server.catalogue import Leave, Publication
    from bowstring.server.sources import Source


class Partitions:
    """The data sets that one reader was admitted to, all together, and that it leaves one by one.

    Changes happen under the session's condition; call what methods return outside of it.
    """

    def __init__(
        self,
        request: PartitionRequest,
        admit: Callable[[bytes], tuple[Publication, Leave]],
        shard: tuple[int, int] | None,
    ) -> None:
        self.ticket = request.generation
        self._leaves: dict[int, Leave] = {}  # of those that count the reader still
        self._taken: set[int] = set()  # of which the reader has the last batch
        self._stopped = False  # it wants no more of the others
        publications: dict[int, Publication] = {}
        try:
            for number, ticket in request.tickets:
                with _named(number):
                    publications[number], self._leaves[number] = admit(ticket)
            sources = {number: each.source for number, each in publications.items()}
            self.name = _name_of([each.name for each in publications.values()])
            self.source = PartitionedSource(sources, shard)
        except BaseException:
            for leave in self.ended():
                leave()
            raise

    def taken(self, numbers: Sequence[int], holds: Callable[[int], bool]) -> list[Callable[[], None]]:
        """Note that the reader's user has the last batches of some; `holds` says of which it holds memory still."""
        self._taken |= self._leaves.keys() & set(numbers)
        return self.emptied(number for number in numbers if not holds(number))

    def emptied(self, numbers: Iterable[int]) -> list[Callable[[], None]]:
        """Note that the reader holds no memory of some, and count it out of those that it is through with."""
        here = (number for number in numbers if number in self._leaves)
        return [self._exit(number) for number in here if self._stopped or number in self._taken]

    def given_up(self, holds: Callable[[int], bool]) -> list[Callable[[], None]]:
        self._stopped = True
        return self.emptied([number for number in self._leaves if not holds(number)])

    def _exit(self, number: int) -> Callable[[], None]:
        return functools.partial(self._leaves.pop(number), number in self._taken)

    def ended(self) -> list[Callable[[], None]]:
        """Note that the reader is gone: it is counted out of all that are left."""
        return [self._exit(number) for number in list(self._leaves)]


@contextlib.contextmanager
def _named(number: int) -> Iterator[None]:
    """Add to errors the partition to which they belong."""
    try:
        yield
    except BowstringError as error:
        error.where = error.where or f"partition {number}"
        raise


_MOST_SHOWN: Final = 200


def _name_of(names: Sequence[str]) -> str:
    first = names[0][:_MOST_SHOWN] if names else "no partition"
    return first if len(names) < 2 else f"{first} and {len(names) - 1} more"


class PartitionedSource(Produced):
    """Materialized data sets of one schema, one behind the other; regions are announced behind their marks."""

    charged = False

    def __init__(self, sources: dict[int, Source], shard: tuple[int, int] | None) -> None:
        self._sources = sources
        self._shard = shard
        self.schema: pa.Schema = next(iter(sources.values())).schema
        for number, source in sources.items():
            with _named(number):
                _check(source, self.schema)
        self.num_rows = sum(source.num_rows or 0 for source in sources.values())
        self.num_batches = sum(source.num_batches or 0 for source in sources.values())
        self.nbytes = sum(source.nbytes or 0 for source in sources.values())

    def items(
        self, columns: tuple[str, ...] | None, *, pointers: bool, make_room: MakeRoom
    ) -> Iterator[IpcMessage | PartitionMark]:
        """Yield the schema, then the mark of each partition and its messages, which it gave to no reader before."""
        schema = Encoder(self.schema, columns, pointers=pointers, charged=False).schema()
        yield schema
        for number in list(self._sources):
            with _named(number):
                source = self._sources.pop(number)  # once it is sent, only its readers keep it
                if self._shard is not None:
                    source = source.shard(*self._shard)
                messages = _messages(source, schema, columns, pointers, make_room)
                yield PartitionMark(number, source.num_batches or 0)
                del source
                yield from messages
                del messages


def _check(source: Source, schema: pa.Schema) -> None:
    if source.charged or source.devices or source.lending is not None or source.num_batches is None:
        raise Unsupported("only data that lie in shared memory of the host go over one stream with others")
    if not source.schema.equals(schema):
        raise InvalidData(
            "a partition has another schema than the first", expected=schema, found=source.schema
        )


def _messages(
    source: Source,
    schema: IpcMessage,
    columns: tuple[str, ...] | None,
    pointers: bool,
    make_room: MakeRoom,
) -> Iterator[IpcMessage]:
    """Return the messages of a partition behind its schema, as they are if its dictionaries are numbered alike."""
    items = source.items(columns, pointers=pointers, make_room=make_room)
    if next(items).metadata == schema.metadata:
        return items
    encoder = Encoder(source.schema, columns, pointers=pointers, charged=False)
    encoder.schema()
    return (item for batch in source.batches() for item in encoder.encode(batch))
