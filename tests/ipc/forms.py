"""The two forms that read a message: the kernel, and plain integers, which name what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.errors import BowstringError
from bowstring.ipc.body.decode import BatchDecoder, Decoded
from bowstring.ipc.body.pack import unpack
from bowstring.ipc.flatbuf.message import RecordBatchHeader
from bowstring.ipc.flatbuf.template import Template
from bowstring.kernels.host import bound
from bowstring.kernels.ipc import read
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.memory import Buffer

COMPILED = bound(read.read_batches) is not None
needs_library = pytest.mark.skipif(not COMPILED, reason="no library of kernels was built here")


@contextmanager
def without_library() -> Iterator[None]:
    """Read in plain integers only."""
    with pytest.MonkeyPatch.context() as context:
        context.setenv("BOWSTRING_KERNELS", "interpret")
        bound.cache_clear()
        assert bound(read.read_batches) is None
        try:
            yield
        finally:
            context.undo()
            bound.cache_clear()


def by_kernel(
    header: RecordBatchHeader, layout: Layout, body: Buffer, limits: Limits = DEFAULT_LIMITS
) -> Decoded | None:
    """Return what the kernel finds of a message of this header; None where it leaves that to plain integers."""
    decoder = BatchDecoder.of(layout, limits)
    metadata = Template(layout).encode_batch(
        header.length,
        header.nodes,
        header.buffers,
        body.nbytes,
        header.variadic_counts,
        compression=header.compression,
    )
    return None if decoder is None else decoder.one(metadata, body)


def by_integers(
    header: RecordBatchHeader, layout: Layout, body: Buffer, limits: Limits = DEFAULT_LIMITS
) -> Batch | None:
    """Return the batch of a message of this header; None where it is refused."""
    with without_library():
        try:
            return unpack(header, layout, body, limits=limits)
        except BowstringError:
            return None
