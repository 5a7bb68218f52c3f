"""What fuzzing starts from: small golden files, and what pyarrow writes of the types that those lack."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring import ipc
from tests.fuzz.conversation_target import conversation_seeds
from tests.fuzz.depot_target import depot_seeds
from tests.fuzz.flight_target import flight_seeds
from tests.fuzz.parquet_target import parquet_seeds
from tests.fuzz.tls_target import tls_seeds
from tests.fuzz.ucx_target import ucx_seeds
from tests.fuzz.vortex_target import vortex_seeds
from tests.variant.documents import document
from tests.variant.encoding import Widths, encode
from tests.variant.matrix import tree_of
from tests.variant.typed_values import GOLDEN, PRIMITIVE_VALUES

_LARGEST: Final = 1 << 13
_MADE: Final = pa.table(
    {
        "word": pa.chunked_array([pa.array(words).dictionary_encode() for words in ("ab", "abc", "cd")]),
        "view": pa.chunked_array(
            [["short", None], ["longer than a view", "x", ""], ["y", "z"]], pa.string_view()
        ),
        "list": pa.chunked_array([[[1], None], [[], [2, 3], [4]], [[5], [6]]], pa.list_view(pa.int16())),
    }
)


def seeds(target: str, data: Path | None) -> dict[str, bytes]:
    """Return first inputs of a target by name.

    Parameters
    ----------
    target
        Its name in ``targets.TARGETS``.
    data
        The ``data`` folder of apache/arrow-testing, where it is there.
    """
    return dict(_SEEDS[target](data))


def _golden(data: Path | None, pattern: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted(data.glob(pattern)) if data else ():
        if path.is_file() and path.stat().st_size <= _LARGEST:
            yield f"{path.parent.name}-{path.name}", path.read_bytes()


def _streams(data: Path | None) -> Iterator[tuple[str, bytes]]:
    for name, options in {
        "plain": {},
        "V4": {"metadata_version": pa.ipc.MetadataVersion.V4},
        "legacy": {"metadata_version": pa.ipc.MetadataVersion.V4, "use_legacy_format": True},
        "delta": {"emit_dictionary_deltas": True},
        "lz4": {"compression": "lz4"},
        "zstd": {"compression": "zstd"},
    }.items():
        yield name, _written(pa.ipc.new_stream, _MADE, **options)
    yield from _golden(data, "arrow-ipc-stream/integration/*/*.stream")
    yield from _golden(data, "arrow-ipc-stream/c*")


def _files(data: Path | None) -> Iterator[tuple[str, bytes]]:
    one = _MADE.unify_dictionaries()
    yield "plain", _written(pa.ipc.new_file, one)
    yield "zstd", _written(pa.ipc.new_file, one, compression="zstd")
    yield from _golden(data, "arrow-ipc-stream/integration/*/*.arrow_file")
    yield from _golden(data, "arrow-ipc-file/c*")


def _metadata(data: Path | None) -> Iterator[tuple[str, bytes]]:
    for name, stream in _streams(data):
        if "clusterfuzz" not in name and "crash" not in name:
            for index, message in enumerate(pa.ipc.MessageReader.open_stream(stream)):
                yield f"{name}-{index}", message.metadata.to_pybytes()


def _tensors(data: Path | None) -> Iterator[tuple[str, bytes]]:
    for dtype in ("u1", "i2", "f2", "f8"):
        for shape in ((), (3,), (2, 3), (0, 4)):
            sink = pa.BufferOutputStream()
            tensor = pa.Tensor.from_numpy(np.ones(shape, dtype), dim_names=["x", "y"][: len(shape)])
            pa.ipc.write_tensor(tensor, sink)
            yield f"{dtype}{shape}", sink.getvalue().to_pybytes()
    dense = np.array([[0, 1.5, 0], [2, 0, 3]])
    for kind in (pa.SparseCOOTensor, pa.SparseCSRMatrix, pa.SparseCSCMatrix, pa.SparseCSFTensor):
        sink = pa.BufferOutputStream()
        ipc.write_sparse_tensor(kind.from_dense_numpy(dense), sink)
        yield kind.__name__, sink.getvalue().to_pybytes()
    yield from _golden(data, "arrow-ipc-tensor-stream/c*")


def _written(new: Any, table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _variants(_data: Path | None) -> Iterator[tuple[str, bytes]]:
    rng = random.Random(3)
    trees = [*GOLDEN.values(), *(tree_of(value) for value in PRIMITIVE_VALUES)]
    for index, tree in enumerate(trees):
        widths = Widths(rng.randrange(1, 5), rng.randrange(1, 5), rng.random() < 0.3)
        metadata, value = encode(tree, widths)
        if len(value) <= _LARGEST:
            yield f"{index}", len(metadata).to_bytes(2, "little") + metadata + value


def _texts(_data: Path | None) -> Iterator[tuple[str, bytes]]:
    rng = random.Random(5)
    for index in range(40):
        text = json.dumps(document(rng), ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 1)))
        yield f"{index}", text.encode()
    numbers = (
        "-0",
        "0.10",
        "1e5",
        "-1E-7",
        "9" * 38,
        "9" * 39,
        "1" * 400,
        "123.456e-300",
        "1e400",
        "0." + "1" * 40,
    )
    yield "numbers", f"[{','.join(numbers)}]".encode()
    yield "escapes", rb' ["\u00e9\ud83d\ude00", "\b\f\n\r\t\/\\\"", true , false, null ] '
    yield "too large", b"1e400"
    yield "twice", b'{"a":1,"a":2}'


def _parquet(data: Path | None) -> Iterator[tuple[str, bytes]]:
    yield from parquet_seeds()
    beside = Path(os.environ.get("PARQUET_TEST_DATA", data.parents[1] / "parquet-testing")) if data else None
    yield from itertools.islice(_golden(beside, "*/*.parquet"), 0, None, 4)


def _vortex(data: Path | None) -> Iterator[tuple[str, bytes]]:
    yield from vortex_seeds()
    beside = Path(os.environ.get("VORTEX_TEST_DATA", data.parents[1] / "vortex-ipc")) if data else None
    yield from _golden(beside, "*/*.vxipc")


def _ucx(_: Path | None) -> Iterator[tuple[str, bytes]]:
    yield from ucx_seeds()


def _conversations(_: Path | None) -> Iterator[tuple[str, bytes]]:
    yield from conversation_seeds().items()


def _depots(_: Path | None) -> Iterator[tuple[str, bytes]]:
    yield from depot_seeds().items()


def _requests(_: Path | None) -> Iterator[tuple[str, bytes]]:
    yield from flight_seeds()


def _connections(_: Path | None) -> Iterator[tuple[str, bytes]]:
    yield from tls_seeds()


_SEEDS: Final = {
    "metadata": _metadata,
    "stream": _streams,
    "file": _files,
    "tensor": _tensors,
    "variant": _variants,
    "json": _texts,
    "parquet": _parquet,
    "vortex": _vortex,
    "conversation": _conversations,
    "depot": _depots,
    "flight": _requests,
    "tls": _connections,
    "ucx": _ucx,
}


def folder_of_seeds() -> Path | None:
    """Return the folder that ``ARROW_TEST_DATA`` names, or that beside the repository."""
    default = Path(__file__).parents[3] / "shared" / "data" / "arrow-testing" / "data"
    folder = Path(os.environ.get("ARROW_TEST_DATA", default))
    return folder if folder.is_dir() else None
