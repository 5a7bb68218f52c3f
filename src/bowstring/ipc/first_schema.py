"""The schema that a file begins with, beside the one that its footer says."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from bowstring.errors import BowstringError, InvalidMetadata
from bowstring.ipc.flatbuf.footer import FILE_START
from bowstring.ipc.flatbuf.message import decode_message
from bowstring.ipc.flatbuf.schema import DecodedSchema, decode_schema
from bowstring.ipc.framing import read_metadata

if TYPE_CHECKING:
    from bowstring.ipc.source import Source
    from bowstring.limits import Limits

__all__ = ["compare", "first_schema"]

_SHOWN: Final = 500


def first_schema(source: Source, end: int, limits: Limits) -> DecodedSchema | None:
    """Return the schema that the stream inside the file begins with, if there is one: Arrow C++ asks for none."""
    source.seek(len(FILE_START))
    try:
        metadata = read_metadata(source, limits)
        if metadata is None or source.position > end:
            return None
        return decode_schema(decode_message(metadata, limits), limits)
    except BowstringError:
        return None


def compare(footer: DecodedSchema, stream: DecodedSchema | None) -> None:
    """Refuse a footer that says other columns than the stream; their metadata may differ."""
    if stream is None or (footer.schema.equals(stream.schema) and footer[1:] == stream[1:]):
        return
    here, said = ([f"{each.endianness}-endian", *map(str, each.schema)] for each in (stream, footer))
    differ = (pair for pair in itertools.zip_longest(here, said) if pair[0] != pair[1])
    expected, found = next(differ, (stream.dictionary_ids, footer.dictionary_ids))
    raise InvalidMetadata(
        "the footer has another schema than the file begins with",
        expected=str(expected)[:_SHOWN],
        found=str(found)[:_SHOWN],
    )
