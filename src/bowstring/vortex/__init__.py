"""Vortex IPC: streams of compressed arrays, read, decoded where they are, written and forwarded."""

from bowstring.vortex.batch import EncodedBatch, Encoding
from bowstring.vortex.rules import encodings
from bowstring.vortex.stream import VortexStream, from_messages, open_stream, to_messages
from bowstring.vortex.writer import VortexWriter, new_stream

__all__ = [
    "EncodedBatch",
    "Encoding",
    "VortexStream",
    "VortexWriter",
    "encodings",
    "from_messages",
    "new_stream",
    "open_stream",
    "to_messages",
]


def __dir__() -> list[str]:
    return __all__
