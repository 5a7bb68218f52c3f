"""The bytes of sparse tensors: against those that Arrow C++ writes, and through a decoder that is not ours.

``arrow-cpp-26.0.1`` holds what Arrow C++ wrote for each of ``CASES``, by way of ``sparse_oracle.cc``. The slow
tests build that again, where there are a compiler and Python's headers, and let Arrow read what we write.
"""

from __future__ import annotations

import importlib.util
import io
import shutil
import struct
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import flatbuffers.number_types as number
import numpy as np
import pyarrow as pa
import pytest
from flatbuffers.table import Table
from hypothesis import given
from hypothesis import strategies as st

from bowstring import ipc

HERE = Path(__file__).parent
GOLDEN = HERE / "arrow-cpp-26.0.1"


def cube(dtype: str) -> np.ndarray:
    """Return a tensor of few values whose dimensions differ in extent."""
    array = np.zeros((5, 3, 4), dtype)
    for place, value in (((0, 1, 2), 1), ((1, 2, 3), 2), ((1, 0, 3), 3), ((4, 1, 2), 4), ((4, 1, 3), 5)):
        array[place] = value
    return array


NAMES = ["x", "long name", ""]
UNSORTED = np.array([[1, 1, 1], [0, 0, 0], [1, 1, 1]])
CASES = {
    "coo": pa.SparseCOOTensor.from_dense_numpy(cube("f8")),
    "coo-named": pa.SparseCOOTensor.from_dense_numpy(cube("i2"), dim_names=NAMES),
    "coo-unsorted": pa.SparseCOOTensor.from_numpy(np.array([[1.0], [2.0], [3.0]]), UNSORTED, (2, 3, 4)),
    "coo-empty": pa.SparseCOOTensor.from_dense_numpy(np.zeros((2, 3), "f4")),
    "csr": pa.SparseCSRMatrix.from_dense_numpy(cube("f2")[4]),
    "csr-empty": pa.SparseCSRMatrix.from_dense_numpy(np.zeros((0, 3), "u1")),
    "csc-named": pa.SparseCSCMatrix.from_dense_numpy(cube("u8")[1], dim_names=NAMES[:2]),
    "csf": pa.SparseCSFTensor.from_dense_numpy(cube("i1")),
    "csf-named": pa.SparseCSFTensor.from_dense_numpy(cube("f4"), dim_names=NAMES),
    "csf-empty": pa.SparseCSFTensor.from_dense_numpy(np.zeros((2, 3, 4))),
}


def written(tensor: Any) -> bytes:
    sink = io.BytesIO()
    assert ipc.write_sparse_tensor(tensor, sink) == len(sink.getvalue())
    return sink.getvalue()


def portable(indices: np.ndarray) -> np.dtype:
    """Return the type in which indices are written: Arrow C++ has no uint64."""
    return np.dtype(np.int64) if indices.dtype == np.uint64 else indices.dtype


def split(message: bytes) -> tuple[bytes, bytes]:
    """Return flatbuffer, without the padding behind it, and body of a message."""
    continuation, length = struct.unpack_from("<II", message)
    assert continuation == 0xFFFFFFFF
    return message[8 : 8 + length].rstrip(b"\0"), message[8 + length :]


class Other:
    """A table of a flatbuffer by the accessors of the package ``flatbuffers``; it checks nothing."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.table = Table(bytearray(data), position)

    @classmethod
    def root(cls, data: bytes) -> Other:
        return cls(data, struct.unpack_from("<I", data)[0])

    def at(self, slot: int) -> int:
        offset: int = self.table.Offset(4 + 2 * slot)
        return self.table.Pos + offset if offset else 0

    def scalar(self, slot: int, flags: Any) -> int:
        return int(self.table.Get(flags, self.at(slot))) if self.at(slot) else 0

    def child(self, slot: int) -> Other:
        return Other(self.data, self.table.Indirect(self.at(slot)))

    def children(self, slot: int) -> list[Other]:
        start, count = self.vector(slot)
        return [Other(self.data, self.table.Indirect(start + 4 * item)) for item in range(count)]

    def vector(self, slot: int) -> tuple[int, int]:
        offset = self.table.Offset(4 + 2 * slot)
        return self.table.Vector(offset), self.table.VectorLen(offset)

    def numbers(self, slot: int, code: str) -> list[int]:
        start, count = self.vector(slot)
        return list(struct.unpack_from(f"<{count}{code}", self.data, start))

    def buffer(self, slot: int) -> tuple[int, int]:
        offset, length = struct.unpack_from("<2q", self.data, self.at(slot))
        return offset, length

    def buffers(self, slot: int) -> list[tuple[int, int]]:
        start, count = self.vector(slot)
        return [struct.unpack_from("<2q", self.data, start + 16 * item) for item in range(count)]

    def integer(self, slot: int) -> np.dtype:
        table = self.child(slot)
        kind = "i" if table.scalar(1, number.BoolFlags) else "u"
        return np.dtype(f"<{kind}{table.scalar(0, number.Int32Flags) // 8}")


def decoded(message: bytes) -> tuple[np.ndarray, dict[str, Any]]:
    """Return a message as a tensor with all its zeros, and what its header says, by the other decoder."""
    data, body = split(message)
    data += bytes(16)
    envelope = Other.root(data)
    assert envelope.scalar(0, number.Int16Flags) == 4
    assert envelope.scalar(1, number.Uint8Flags) == 5
    assert envelope.scalar(3, number.Int64Flags) == len(body)
    header = envelope.child(2)
    dims = header.children(2)
    shape = tuple(dim.scalar(0, number.Int64Flags) for dim in dims)
    count = header.scalar(3, number.Int64Flags)
    if header.scalar(0, number.Uint8Flags) == 2:
        dtype = header.integer(1)
    else:
        dtype = np.dtype(f"<f{2 << header.child(1).scalar(0, number.Int16Flags)}")

    def array(offset: int, dtype: np.dtype, count: int) -> np.ndarray:
        assert offset % 8 == 0
        return np.frombuffer(body, dtype, count, offset)

    index = header.child(5)
    said: dict[str, Any] = {"kind": header.scalar(4, number.Uint8Flags)}
    said["names"] = [dim.table.String(dim.at(1)).decode() for dim in dims]
    result = np.zeros(shape, dtype)
    data_at, data_bytes = header.buffer(6)
    assert count * dtype.itemsize <= data_bytes < count * dtype.itemsize + 8
    values = array(data_at, dtype, count)
    if said["kind"] == 1:
        said["types"] = [index.integer(0)]
        said["canonical"] = index.scalar(3, number.BoolFlags)
        matrix = array(index.buffer(2)[0], index.integer(0), count * len(shape)).reshape(count, len(shape))
        assert index.numbers(1, "q") == list(np.empty(matrix.shape, matrix.dtype).strides) or not count
        places = [tuple(row) for row in matrix.tolist()]
    elif said["kind"] == 2:
        said["types"] = [index.integer(1), index.integer(3)]
        axis = said["axis"] = index.scalar(0, number.Int16Flags)
        indptr = array(index.buffer(2)[0], index.integer(1), shape[axis] + 1).tolist()
        indices = array(index.buffer(4)[0], index.integer(3), count).tolist()
        lines = [line for line in range(shape[axis]) for _ in range(indptr[line], indptr[line + 1])]
        places = [(a, b) if axis == 0 else (b, a) for a, b in zip(lines, indices, strict=True)]
    else:
        said["types"] = [index.integer(0), index.integer(2)]
        said["order"] = index.numbers(4, "i")
        levels = [array(at, index.integer(2), length).tolist() for at, length in index.buffers(3)]
        ranges = [array(at, index.integer(0), length).tolist() for at, length in index.buffers(1)]

        def walk(level: int, nodes: range) -> list[tuple[int, ...]]:
            if level == len(levels) - 1:
                return [(levels[level][node],) for node in nodes]
            starts = ranges[level]
            return [
                (levels[level][node], *rest)
                for node in nodes
                for rest in walk(level + 1, range(starts[node], starts[node + 1]))
            ]

        found = walk(0, range(len(levels[0])))
        places = [tuple(row[said["order"].index(axis)] for axis in range(len(shape))) for row in found]
    for place, value in zip(places, values, strict=True):
        result[place] += value
    return result, said


@st.composite
def dense_arrays(draw: st.DrawFn, ndim: int | None = None) -> np.ndarray:
    """Draw a tensor of mostly zeros."""
    sizes = st.lists(st.integers(1, 5), min_size=ndim or 2, max_size=ndim or 4)
    dtype = draw(st.sampled_from(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]))
    shape = draw(sizes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return ((rng.random(shape) < draw(st.floats(0, 1))) * rng.integers(1, 100, shape)).astype(dtype)


def forms(array: np.ndarray) -> list[Any]:
    """Return a tensor in each form that pyarrow has for it."""
    made = [pa.SparseCOOTensor.from_dense_numpy(array), pa.SparseCSFTensor.from_dense_numpy(array)]
    if array.ndim == 2:
        made += [pa.SparseCSRMatrix.from_dense_numpy(array), pa.SparseCSCMatrix.from_dense_numpy(array)]
    return made


INTEGERS = st.sampled_from(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])


@st.composite
def tensors(draw: st.DrawFn) -> tuple[np.ndarray, ipc.SparseTensor]:
    """Draw a tensor in any form with indices of any integer type, and what it is with its zeros."""
    array = draw(dense_arrays())
    form = draw(st.sampled_from(forms(array)))
    names = draw(st.none() | st.lists(st.text("ab", max_size=2), min_size=array.ndim, max_size=array.ndim))
    data, *index = form.to_numpy()
    # Ranges go up to the number of values, which a byte need not hold.
    integers = INTEGERS if len(data) < 128 else st.sampled_from(["i2", "u4", "i8"])
    first, second = draw(integers), draw(integers)
    shape = array.shape
    if isinstance(form, pa.SparseCOOTensor):
        coords = index[0].astype(first)
        if draw(st.booleans()):
            order = np.array(draw(st.permutations(range(len(coords)))), np.int64)
            return array, ipc.SparseTensor.from_coo(data[order], tuple(coords[order].T), shape, names)
        return array, ipc.SparseTensor.from_coo(data, coords, shape, names)
    if isinstance(form, pa.SparseCSFTensor):
        order = np.argsort(shape, kind="stable").tolist()
        indptr, indices = (
            [level.astype(kind) for level in levels]
            for levels, kind in zip(index, (first, second), strict=True)
        )
        return array, ipc.SparseTensor.from_csf(data, indptr, indices, shape, order, names)
    make = ipc.SparseTensor.from_csr if isinstance(form, pa.SparseCSRMatrix) else ipc.SparseTensor.from_csc
    return array, make(data, index[0].astype(first), index[1].astype(second), shape, names)


@pytest.mark.parametrize("name", CASES)
def test_the_bytes_are_those_of_arrow(name: str) -> None:
    """Metadata and body are byte for byte what Arrow C++ wrote; only the padding between them is up to 64 bytes."""
    golden = (GOLDEN / f"{name}.message").read_bytes()
    message = written(CASES[name])
    assert split(message) == split(golden)
    assert (len(message) - len(split(golden)[1])) % 64 == 0


@pytest.mark.parametrize("name", CASES)
def test_what_arrow_wrote_is_read(name: str) -> None:
    """Messages of Arrow C++ are read as the tensor that they were made of, with names and order."""
    tensor = ipc.read_sparse_tensor(GOLDEN / f"{name}.message")
    tensor.validate(full=True)
    assert tensor.to_arrow().equals(CASES[name])
    assert list(tensor.dim_names) == list(CASES[name].dim_names)
    if tensor.format == "coo":
        index: Any = tensor.index
        assert index.is_canonical == CASES[name].has_canonical_format


@given(tensors())
def test_another_decoder_reads_what_is_written(case: tuple[np.ndarray, ipc.SparseTensor]) -> None:
    """A decoder that shares no code with ours finds each value in its place, and types and names as given."""
    array, tensor = case
    found, said = decoded(written(tensor))
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)
    assert said["names"] == list(tensor.dim_names or [""] * array.ndim)
    index: Any = tensor.index
    if tensor.format == "coo":
        assert said["types"] == [portable(index.indices[0])]
        assert said["canonical"] == index.is_canonical
    else:
        assert said["types"] == [portable(part) for part in (index.parts[0], index.parts[-1])]


@given(tensors())
def test_we_read_what_we_write(case: tuple[np.ndarray, ipc.SparseTensor]) -> None:
    """Values, index types, names and order come back, and the tensor with its zeros is the same."""
    array, tensor = case
    found = ipc.read_sparse_tensor(written(tensor))
    found.validate(full=True)
    assert (found.format, found.shape, found.dtype) == (tensor.format, array.shape, array.dtype)
    assert found.dim_names == (tensor.dim_names if any(tensor.dim_names) else ())
    assert [part.dtype for part in found.index.parts] == [portable(part) for part in tensor.index.parts]
    assert np.array_equal(found.to_tensor().to_numpy(), array)
    assert written(found) == written(ipc.SparseTensor(found.data, found.index, found.shape, found.dim_names))


def patched(message: bytes, *changes: tuple[str, tuple[int, ...], tuple[int, ...]]) -> bytes:
    """Return a message with numbers in its metadata replaced; each must be there once."""
    for layout, old, new in changes:
        before = struct.pack(f"<{layout}", *old)
        assert message.count(before) == 1, old
        message = message.replace(before, struct.pack(f"<{layout}", *new))
    return message


def test_coordinates_by_columns_are_read() -> None:
    """The format allows one row per dimension; it is read without a copy."""
    coords = np.array([[0, 1], [2, 0], [2, 3]])
    message = written(ipc.SparseTensor.from_coo([1.0, 2.0, 3.0], coords, (3, 4)))
    body = np.ascontiguousarray(coords.T).tobytes()
    message = patched(message, ("2q", (16, 8), (8, 24))).replace(coords.tobytes(), body)
    found = ipc.read_sparse_tensor(message)
    assert found.format == "coo"
    index: Any = found.index
    assert [positions.tolist() for positions in index.indices] == coords.T.tolist()
    assert all(np.shares_memory(each, np.frombuffer(message, np.uint8)) for each in index.indices)
    assert found.to_scipy().toarray()[2].tolist() == [2, 0, 0, 3]


def test_lengths_of_fibers_in_bytes_are_read() -> None:
    """Arrow C++ counts the elements of fibers, the format's text says bytes: both are read."""
    tensor = CASES["csf"]
    message = written(tensor)
    _, indptr, indices = tensor.to_numpy()
    at, changes = 0, []
    for levels in (indptr, indices):
        elements, lengths = [], []
        for level in levels:
            elements += [at, level.size]
            lengths += [at, level.nbytes]
            at += level.nbytes
        changes.append((f"{len(elements)}q", tuple(elements), tuple(lengths)))
    assert ipc.read_sparse_tensor(patched(message, *changes)).to_arrow().equals(tensor)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Build the bridge to Arrow C++."""
    compiler = shutil.which("g++")
    python = Path(sysconfig.get_paths()["include"])
    library = Path(pa.__file__).parent
    shared = [
        next(iter(sorted(library.glob(f"{name}.so.*"))), None) for name in ("libarrow", "libarrow_python")
    ]
    if compiler is None or not (python / "Python.h").exists() or None in shared:
        pytest.skip("no C++ compiler, no headers of Python, or a pyarrow without its libraries")
    target = tmp_path_factory.mktemp("oracle") / "sparse_oracle.so"
    command: list[Any] = [
        compiler,
        "-std=c++20",
        "-w",
        "-fPIC",
        "-shared",
        HERE / "sparse_oracle.cc",
        "-o",
        target,
    ]
    command += [f"-I{pa.get_include()}", f"-I{python}", *shared, f"-Wl,-rpath,{library}"]
    subprocess.run(command, check=True, timeout=300)
    spec = importlib.util.spec_from_file_location("sparse_oracle", target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_golden_messages_are_what_arrow_writes(oracle: Any, name: str) -> None:
    """The golden messages are still those of the Arrow C++ inside pyarrow."""
    assert oracle.write(CASES[name]).to_pybytes() == (GOLDEN / f"{name}.message").read_bytes()


@pytest.mark.slow
@given(dense_arrays())
def test_arrow_writes_the_same_bytes(oracle: Any, array: np.ndarray) -> None:
    """Arrow C++ and we write the same metadata and body for any tensor of pyarrow's."""
    for tensor in forms(array):
        assert split(written(tensor)) == split(oracle.write(tensor).to_pybytes())


@pytest.mark.slow
@given(tensors())
def test_arrow_reads_what_is_written(oracle: Any, case: tuple[np.ndarray, ipc.SparseTensor]) -> None:
    """Arrow C++ reads any form with indices of any type, each value in its place, and writes the same bytes."""
    array, tensor = case
    message = written(tensor)
    found = oracle.read(pa.py_buffer(message))
    assert np.array_equal(found.to_tensor().to_numpy(), array)
    # Arrow cannot write fibers that it has read: it took the numbers of their elements for bytes.
    assert tensor.format == "csf" or split(oracle.write(found).to_pybytes()) == split(message)
