"""Coordinates of sparse tensors at any strides that the format allows, and at those that lead nowhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bowstring import ipc
from bowstring.errors import InvalidMetadata
from bowstring.ipc.flatbuf.builder import Builder, Reference, Scalar, Struct
from bowstring.ipc.flatbuf.message import MessageKind
from bowstring.ipc.framing import frame
from bowstring.ipc.tensor.metadata import encode_head, encode_integer, encode_message
from bowstring.memory import cpu
from bowstring.testing import FakeDevice, fake_device
from tests.ipc.test_sparse_format import patched, written

COORDS = np.array([[0, 1, 2], [2, 0, 1], [2, 3, 0], [2, 3, 1]])
STRIDES = {
    "by rows": (24, 8),
    "by columns": (8, 32),
    "rows apart": (40, 8),
    "columns apart": (8, 48),
    "every other": (48, 16),
    "every other, by columns": (16, 72),
    "interleaved": (32, 8),
}


def strided(strides: tuple[int, int], coords: np.ndarray = COORDS, *, nbytes: int = 0) -> bytes:
    """Return a message whose coordinates lie at these strides, with other numbers between them."""
    count, depth = coords.shape
    length = nbytes or sum((size - 1) * step for size, step in zip(coords.shape, strides, strict=True)) + 8
    room = np.full(max(length, 1024) // 8, -7)
    for (value, axis), position in np.ndenumerate(coords):
        at = (value * strides[0] + axis * strides[1]) // 8
        if 0 <= at < len(room):
            room[at] = position
    data = np.arange(1.0, count + 1)
    body = room[: length // 8].tobytes() + data.tobytes()
    builder = Builder()
    head = encode_head(builder, data.dtype, (3, 4, 5)[:depth], ())
    type_, steps = encode_integer(builder, np.dtype("<i8")), Reference(builder.vector("q", strides))
    index = builder.table([type_, steps, Struct("qq", (0, length)), None])
    values = Struct("qq", (length, data.nbytes))
    header = builder.table([*head, Scalar("q", count), Scalar("B", 1), Reference(index), values])
    return frame(encode_message(builder, MessageKind.SPARSE_TENSOR, header, len(body))) + body


@pytest.mark.parametrize("kind", STRIDES)
@pytest.mark.parametrize("device", [None, fake_device()], ids=["cpu", "fake"])
def test_coordinates_of_any_strides_are_read(kind: str, device: FakeDevice | None) -> None:
    """Coordinates lie in their matrix as its strides say, on the host without a copy."""
    message = strided(STRIDES[kind])
    found = ipc.read_sparse_tensor(message, device=device)
    found.validate(full=True)
    assert found.format == "coo"
    index: Any = found.index
    if device is None:
        assert all(np.shares_memory(each, np.frombuffer(message, np.uint8)) for each in index.indices)
    host = found.to_device(cpu())
    there: Any = host.index
    assert np.array_equal(np.stack(there.indices, axis=1), COORDS)
    expected = np.zeros((3, 4, 5))
    expected[tuple(COORDS.T)] = [1, 2, 3, 4]
    assert np.array_equal(host.to_tensor().to_numpy(), expected)
    assert np.array_equal(ipc.read_sparse_tensor(written(found)).to_tensor().to_numpy(), expected)


@pytest.mark.parametrize("strides", [(0, 8), (-8, 8), (1 << 62, 1 << 62), (-(1 << 63), 8)], ids=str)
def test_strides_of_one_value_do_not_matter(strides: tuple[int, int]) -> None:
    """A dimension of one element has no next one, whatever the strides say; without values there are none."""
    one = patched(strided((1 << 8, 8), COORDS[:1], nbytes=24), ("2q", (1 << 8, 8), (strides[0], 8)))
    found = ipc.read_sparse_tensor(one)
    index: Any = found.index
    assert [positions.tolist() for positions in index.indices] == [[0], [1], [2]]
    none = patched(strided((1 << 8, 8), COORDS[:0], nbytes=24), ("2q", (1 << 8, 8), strides))
    assert ipc.read_sparse_tensor(none).non_zero_length == 0


def test_one_column_for_all_dimensions_is_read() -> None:
    """A diagonal may name its coordinates once."""
    found = ipc.read_sparse_tensor(strided((8, 0), np.array([[0, 0], [1, 1], [2, 2]])))
    assert np.array_equal(found.to_tensor().to_numpy(), np.diag([1.0, 2.0, 3.0, 0.0])[:3])


@pytest.mark.parametrize(
    "strides",
    [
        *((0, 8), (-24, 8), (24, -8), (-(1 << 63), 8), (12, 8), (24, 4), (25, 8)),
        *((1 << 62, 8), (24, 1 << 62), ((1 << 63) - 8, (1 << 63) - 8), (104, 8), (24, 40)),
    ],
    ids=str,
)
def test_hostile_strides_are_refused(strides: tuple[int, int]) -> None:
    """Strides that go back, stand still, lead between elements or out of the buffer are refused."""
    message = strided((24, 8), nbytes=96)
    message = patched(message, ("2q", (24, 8), strides))
    with pytest.raises(InvalidMetadata, match=r"strides|too short"):
        ipc.read_sparse_tensor(message)
