"""Arrow IPC: metadata, framing and streams, under the names of ``pyarrow.ipc``."""

from bowstring.ipc.stream import StreamReader, StreamWriter, new_stream, open_stream

__all__ = ["StreamReader", "StreamWriter", "new_stream", "open_stream"]
