"""Sparse tensors on a GPU become matrices of cupyx, of which only what is asked for is here."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

from bowstring import ipc
from bowstring.errors import InvalidBody, MissingDependency, NotOnDevice, Unsupported
from bowstring.memory import cpu
from bowstring.testing import OnlyCurrent, fake_device

DEVICE = fake_device(1)
DENSE = np.array([[0, 1.5, 0], [2.5, 0, 3.5]])


class Matrix:
    """What the constructors of cupyx take, and refuse, and keep (CuPy 13, ``_compressed.py`` and ``_coo.py``)."""

    form = ""

    def __init__(self, arrays: tuple[Any, ...], shape: tuple[int, int]) -> None:
        data, *index = arrays
        if data.dtype.char not in "?fdFD":
            raise ValueError("Only bool, float32, float64, complex64 and complex128 are supported")
        self.format, self.shape, self.data = self.form, shape, data
        index = [each.astype(np.int32) if each.dtype != np.int32 else each for each in index]
        if self.form == "coo":
            self.row, self.col = index
        else:
            self.indices, self.indptr = index
            self.has_sorted_indices = True


class Coo(Matrix):
    form = "coo"

    def __init__(self, arrays: tuple[Any, ...], shape: tuple[int, int]) -> None:
        data, (row, col) = arrays
        super().__init__((data, row, col), shape)


class Csr(Matrix):
    form = "csr"


class Csc(Matrix):
    form = "csc"


@pytest.fixture
def cupyx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put cupyx in its place."""
    sparse: Any = types.ModuleType("cupyx.scipy.sparse")
    sparse.coo_matrix, sparse.csr_matrix, sparse.csc_matrix = Coo, Csr, Csc
    monkeypatch.setitem(sys.modules, "cupyx", types.ModuleType("cupyx"))
    monkeypatch.setitem(sys.modules, "cupyx.scipy", types.ModuleType("cupyx.scipy"))
    monkeypatch.setitem(sys.modules, "cupyx.scipy.sparse", sparse)


def tensor_of(form: str, dtype: str = "f8", index: str = "i4") -> ipc.SparseTensor:
    """Return the matrix on the host."""
    dense = DENSE.astype(dtype)
    rows, cols = (each.astype(index) for each in np.nonzero(dense))
    data = dense[dense != 0]
    if form == "coo":
        return ipc.SparseTensor.from_coo(data, np.stack([rows, cols], axis=1), dense.shape)
    if form == "csr":
        return ipc.SparseTensor.from_csr(data, np.array([0, 1, 3], index), cols, dense.shape)
    order = np.argsort(cols, kind="stable")
    return ipc.SparseTensor.from_csc(data[order], np.array([0, 1, 2, 3], index), rows[order], dense.shape)


@pytest.mark.parametrize("index", ["i4", "i8", "u2"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_values_are_not_copied(cupyx: None, form: str, dtype: str, index: str) -> None:
    """A matrix has the addresses of the values and of int32 indices, and comes back as the same tensor."""
    tensor = tensor_of(form, dtype, index).to_device(DEVICE)
    with OnlyCurrent():
        matrix = tensor.to_cupyx()
    assert (matrix.format, matrix.shape) == (form, (2, 3))
    assert matrix.data is tensor.data
    if form != "coo":
        given = matrix.indptr, matrix.indices
        same = [one.data.ptr == other.data.ptr for one, other in zip(given, tensor.index.parts, strict=True)]
        assert same == [index == "i4"] * 2
    back = ipc.SparseTensor.from_scipy(matrix)
    assert back.device is DEVICE
    assert np.array_equal(back.to_device(cpu()).to_tensor().to_numpy(), DENSE.astype(dtype))


def test_nothing_of_the_values_passes_the_host(cupyx: None) -> None:
    """The host looks at what is checked of the indices, and at no value."""
    tensor = tensor_of("csr").to_device(DEVICE)
    tensor.validate(full=True)
    DEVICE.stats.reset()
    tensor.to_cupyx()
    assert (DEVICE.stats.host_reads, DEVICE.stats.host_writes) == (0, 0)


def test_coordinates_are_given_in_one_piece(cupyx: None) -> None:
    """Columns of a matrix of coordinates lie apart, which cuSPARSE does not ask."""
    coords = DEVICE.from_host(np.array([[0, 1], [1, 0], [1, 2]], np.int32))
    data = DEVICE.from_host(np.array([1.5, 2.5, 3.5]))
    tensor = ipc.SparseTensor.from_coo(data, coords, (2, 3))
    assert tensor.format == "coo"
    matrix = tensor.to_cupyx()
    assert DEVICE.to_host(matrix.row).tolist() == [0, 1, 1]
    assert DEVICE.to_host(matrix.col).tolist() == [1, 0, 2]
    assert matrix.row.data.ptr != coords.data.ptr


def test_what_the_host_has_stays_there(cupyx: None) -> None:
    """A tensor on the host is not copied to a GPU by this name."""
    with pytest.raises(NotOnDevice, match="to_device"):
        tensor_of("csr").to_cupyx()


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CuPy the error says what to install."""
    monkeypatch.setitem(sys.modules, "cupyx.scipy.sparse", None)
    with pytest.raises(MissingDependency, match=r"bowstring\[cuda13\]"):
        tensor_of("csr").to_device(DEVICE).to_cupyx()


UNKNOWN: dict[str, Any] = {
    "integers": lambda: ipc.SparseTensor.from_csr([1, 2], [0, 1, 2], [0, 1], (2, 2)),
    "half floats": lambda: tensor_of("csr", "f2"),
    "three dimensions": lambda: ipc.SparseTensor.from_coo([1.0], [[0, 0, 0]], (1, 1, 1)),
    "fibers": lambda: ipc.SparseTensor.from_csf([7.0], [[0, 1]], [[1], [0]], (2, 2)),
    "too many columns": lambda: ipc.SparseTensor.from_csr([7.0], [0, 1], [0], (1, 1 << 31)),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_what_cupyx_has_not_is_unsupported(cupyx: None, kind: str) -> None:
    """What cupyx knows no matrices of is refused before it is asked, or with its words."""
    with pytest.raises(Unsupported, match="cupyx"):
        UNKNOWN[kind]().to_device(DEVICE).to_cupyx()


def test_wrong_indices_do_not_get_there(cupyx: None) -> None:
    """An index out of range is found before a kernel believes it."""
    tensor = ipc.SparseTensor.from_csr([5.0], [0, 1], [7], (1, 3)).to_device(DEVICE)
    with pytest.raises(InvalidBody, match="outside the tensor"):
        tensor.to_cupyx()
