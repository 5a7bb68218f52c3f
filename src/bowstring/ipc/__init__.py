"""Arrow IPC: metadata, framing, streams and files, under the names of ``pyarrow.ipc``."""

from pyarrow.ipc import Alignment, ReadStats, WriteStats

from bowstring.ipc.dictionary.reader import DictionaryMemo
from bowstring.ipc.file import RecordBatchFileReader, RecordBatchFileWriter, new_file, open_file
from bowstring.ipc.flatbuf.message import MetadataVersion
from bowstring.ipc.flatbuf.reader import KeyValueMetadata
from bowstring.ipc.message import (
    Message,
    MessageReader,
    get_record_batch_size,
    read_dictionary,
    read_message,
    read_record_batch,
    read_schema,
    serialize_record_batch,
    serialize_schema,
)
from bowstring.ipc.options import IpcReadOptions, IpcWriteOptions
from bowstring.ipc.reader import RecordBatchReader, RecordBatchWithMetadata
from bowstring.ipc.stream import (
    RecordBatchStreamReader,
    RecordBatchStreamWriter,
    deserialize_pandas,
    new_stream,
    open_stream,
    serialize_pandas,
)
from bowstring.ipc.tensor.sparse import SparseTensor
from bowstring.ipc.tensor.sparse_message import read_sparse_tensor, write_sparse_tensor
from bowstring.ipc.tensor.tensor import Tensor, get_tensor_size, read_tensor, write_tensor
from bowstring.ipc.writer import RecordBatchWriter

__all__ = [
    "Alignment",
    "DictionaryMemo",
    "IpcReadOptions",
    "IpcWriteOptions",
    "KeyValueMetadata",
    "Message",
    "MessageReader",
    "MetadataVersion",
    "ReadStats",
    "RecordBatchFileReader",
    "RecordBatchFileWriter",
    "RecordBatchReader",
    "RecordBatchStreamReader",
    "RecordBatchStreamWriter",
    "RecordBatchWithMetadata",
    "RecordBatchWriter",
    "SparseTensor",
    "Tensor",
    "WriteStats",
    "deserialize_pandas",
    "get_record_batch_size",
    "get_tensor_size",
    "new_file",
    "new_stream",
    "open_file",
    "open_stream",
    "read_dictionary",
    "read_message",
    "read_record_batch",
    "read_schema",
    "read_sparse_tensor",
    "read_tensor",
    "serialize_pandas",
    "serialize_record_batch",
    "serialize_schema",
    "write_sparse_tensor",
    "write_tensor",
]


def __dir__() -> list[str]:
    return __all__
