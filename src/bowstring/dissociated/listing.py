"""Listing: which data sets a server offers, asked and answered on a connection of its own, without IO.

The reader sends a hello and LIST; the server answers with LISTING for each data set, in pieces where its schema is
long, and an empty one behind the last (``docs/protocol.md``).
"""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bowstring.columnar.display import table_of_facts
from bowstring.dissociated.failures import unpack_error
from bowstring.dissociated.tags import Control
from bowstring.dissociated.wire import Hello, Outgoing, json_object, text_of
from bowstring.errors import LimitExceeded, ProtocolError, UnknownTicket

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bowstring.dissociated.location import Location
    from bowstring.limits import Limits

_MOST_NAME = 4096
_PIECE = 64 << 10  # of what Limits.control_bytes allows, whatever it is set to in practice
_MOST_SHOWN = 20
_ENDS, _GOES_ON = b"\0", b"\1"


@dataclasses.dataclass(frozen=True, slots=True)
class DatasetInfo:
    """What a server says of a data set that it offers.

    Attributes
    ----------
    name
        What :func:`bowstring.connect` takes.
    schema
        Of its batches.
    num_rows, nbytes
        How many rows, and bytes in all columns, where that is known: not for what is produced as it is read.
    readers
        How many readers read it now.
    readers_left
        How many more readers it takes (``publish(readers=…)``); ``None`` for any number.
    published_at
        When it was published, in seconds since the beginning of 1970; ``None`` where a Flight server does not say.
    ticket
        What stands for this version of it alone, whatever takes its name later.

    Examples
    --------
    >>> import bowstring as bow
    >>> with bow.Server() as server:
    ...     endpoint = server.publish("trips", {"fare": [1.5, 2.5]})
    ...     [info] = bow.list_datasets(server.address)
    >>> info.name, info.schema.names, info.num_rows, info.nbytes
    ('trips', ['fare'], 2, 16)
    """

    name: str
    schema: pa.Schema
    num_rows: int | None
    nbytes: int | None
    readers: int
    published_at: float | None
    ticket: bytes = dataclasses.field(repr=False)
    readers_left: int | None = None

    def __repr__(self) -> str:
        rows = "" if self.num_rows is None else f"{self.num_rows:,} rows × "
        size = "" if self.nbytes is None else f", {self.nbytes:,} bytes"
        return f"<DatasetInfo {self.name!r} {rows}{len(self.schema)} columns{size}, {self.readers} readers>"

    def pack(self) -> bytes:
        """Return the JSON of the message."""
        fields = {
            "name": self.name,
            "schema": base64.b64encode(self.schema.serialize()).decode(),
            "rows": self.num_rows,
            "nbytes": self.nbytes,
            "readers": self.readers,
            "published_at": self.published_at,
            "ticket": base64.b64encode(self.ticket).decode(),
            "readers_left": self.readers_left,
        }
        return json.dumps(fields).encode()

    @classmethod
    def unpack(cls, data: bytes) -> DatasetInfo:
        """Read a message; raise `ProtocolError` if it does not describe a data set."""
        fields = json_object(data, "listing")
        name, published = text_of(fields, "name", _MOST_NAME), fields.get("published_at")
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(fields["schema"], validate=True)))
            ticket = base64.b64decode(fields["ticket"], validate=True)
        except (KeyError, TypeError, ValueError, OSError, pa.ArrowException) as error:
            raise ProtocolError("a listing has no schema or ticket", found=str(error)[:200]) from error
        if name is None or not isinstance(published, int | float) or isinstance(published, bool):
            raise ProtocolError("a listing has no name or time", found=str(sorted(fields))[:200])
        rows, nbytes, readers, readers_left = (
            _count(fields.get(key)) for key in ("rows", "nbytes", "readers", "readers_left")
        )
        return cls(name, schema, rows, nbytes, readers or 0, float(published), ticket, readers_left)


class DatasetInfos(list[DatasetInfo]):
    """What a server offers: a list, which notebooks show as a table."""

    def _repr_html_(self) -> str:
        columns = ("name", "num_rows", "nbytes", "readers")
        facts = [
            [getattr(each, column) for column in columns] + [", ".join(each.schema.names)] for each in self
        ]
        return table_of_facts(f"{len(self):,} data sets", [*columns, "columns"], facts)


def _count(value: Any) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return value if fits else None


def ask_for_list(location: Location) -> list[Outgoing]:
    """Return what a reader sends to be told what a server offers."""
    hello = Hello(token=location.token)
    return [Outgoing(location.hello, [hello.pack()]), Outgoing(Control.LIST, [])]


def list_of(infos: Iterable[DatasetInfo]) -> list[Outgoing]:
    """Return a server's answer."""
    outgoing = []
    for packed in (info.pack() for info in infos):
        for start in range(0, len(packed), _PIECE):
            mark = _ENDS if start + _PIECE >= len(packed) else _GOES_ON
            outgoing.append(Outgoing(Control.LISTING, [mark, packed[start : start + _PIECE]]))
    return [*outgoing, Outgoing(Control.LISTING, [])]


class ListingReader:
    """Takes a server's answer, which `limits` bound."""

    def __init__(self, limits: Limits) -> None:
        self.infos: list[DatasetInfo] = []  # so far
        self.complete = False
        self._left = limits.metadata_bytes
        self._begun = bytearray()  # which grows in place, however many pieces come

    def receive(self, tag: int | None, body: bytes) -> None:
        """Take a message; raise the error that the server sent, if it did."""
        if tag == Control.ERROR:
            raise unpack_error(body)
        if tag != Control.LISTING or self.complete:
            raise ProtocolError("a server that is asked for a list says nothing else", found=f"tag {tag}")
        self._left -= len(body)
        if self._left < 0:
            raise LimitExceeded("the list of data sets is too long", found=f"{len(self.infos)} data sets")
        self._begun += body[1:]
        if body[:1] == _ENDS:
            self.infos.append(DatasetInfo.unpack(bytes(self._begun)))
            self._begun = bytearray()
        elif not body:
            self.complete = True


def only_name(names: list[str], server: str | None) -> str:
    """Return the name of the only data set that a server offers."""
    if len(names) == 1:
        return names[0]
    raise UnknownTicket(
        "the server offers several data sets" if names else "the server offers no data set",
        expected=f"a name: connect({'address' if server else 'server'}, name)" if names else None,
        found=shown_names(names) or None,
        where=server,
    )


def shown_names(names: list[str]) -> str:
    """Return names for an error, the first of them where there are many."""
    more = ", …" if len(names) > _MOST_SHOWN else ""
    return ", ".join(map(repr, names[:_MOST_SHOWN])) + more
